//! The variables of a shader that stand for the parameters of its signature.

#![forbid(unsafe_code)]

use wgpu::naga::valid::FunctionInfo;
use wgpu::naga::{
    AddressSpace, GlobalVariable, Handle, Module, Scalar, StorageAccess, StructMember, Type, TypeInner,
};

use crate::backend::wgpu::code::Binding;
use crate::backend::wgpu::element::{check_buffer, check_scalar, wgsl};
use crate::backend::wgpu::params::{Field, Params, Passing, Value};
use crate::backend::wgpu::reflect::Allowed;
use crate::backend::wgpu::words::{Parameter, Parameters};
use crate::kernel::signature::ParamKind;

/// A shader whose variables are looked for.
pub(crate) struct Variables<'m> {
    module: &'m Module,
    /// Which variables the entry point uses.
    info: &'m FunctionInfo,
    signature: &'m Parameters,
}

/// What was found.
#[derive(Debug)]
pub(crate) struct Found {
    /// One for each buffer parameter.
    pub(crate) bindings: Box<[Binding]>,
    /// Those of the buffers that are tables.
    pub(crate) tables: Vec<Handle<GlobalVariable>>,
    pub(crate) scalars: Option<Handle<GlobalVariable>>,
    pub(crate) params: Params,
}

impl<'m> Variables<'m> {
    pub(crate) fn new(module: &'m Module, info: &'m FunctionInfo, signature: &'m Parameters) -> Self {
        Variables { module, info, signature }
    }

    /// Finds a variable for every parameter, and compares the two.
    pub(crate) fn find(&self, allowed: &Allowed) -> Result<Found, String> {
        let (mut taken, mut tables, mut bindings) = (Vec::new(), Vec::new(), Vec::new());
        for (binding, param) in self.signature.buffers.iter().enumerate() {
            let handle = self.buffer(binding, param)?;
            bindings.push(Binding { least: self.least(handle) });
            taken.push(handle);
            if param.is_table() {
                tables.push(handle);
            }
        }
        let scalars = self.scalars()?;
        taken.extend(scalars);
        self.check_others(&taken)?;
        let params = match scalars {
            Some(handle) => self.params(handle, allowed)?,
            None => Params::nothing(),
        };
        Ok(Found { bindings: bindings.into(), tables, scalars, params })
    }

    /// The variable of a buffer parameter.
    fn buffer(&self, binding: usize, param: &Parameter) -> Result<Handle<GlobalVariable>, String> {
        let Some(handle) = self.declared(|var| is_at(var, binding)) else {
            let (name, declaration) = (param.name(), param.declaration(binding));
            return Err(format!(
                "the shader has no `@binding({binding})` for {name}: declare `{declaration}`"
            ));
        };
        let var = &self.module.global_variables[handle];
        self.check_space(var, param)?;
        check_buffer(self.module, var.ty, &param.ty).map_err(|what| {
            let (var, ty) = (self.name(var), wgsl(self.module, var.ty));
            format!("{var}, `{ty}`, is {}, and {what}", param.name())
        })?;
        Ok(handle)
    }

    fn check_space(&self, var: &GlobalVariable, param: &Parameter) -> Result<(), String> {
        let writable = |access: StorageAccess| access.contains(StorageAccess::STORE);
        let found = match var.space {
            AddressSpace::Storage { access } if writable(access) == param.is_written() => return Ok(()),
            AddressSpace::Uniform if param.is_table() => return Ok(()),
            AddressSpace::Storage { access } if writable(access) => "can be written",
            AddressSpace::Storage { .. } => "can only be read",
            AddressSpace::Uniform => "is a uniform",
            _ => "is no buffer",
        };
        let (var, name, wanted) = (self.name(var), param.name(), param.variable());
        Err(format!("{var} {found}, and is {name}: declare it as `{wanted}`"))
    }

    /// The fewest bytes that can be bound, in words.
    fn least(&self, handle: Handle<GlobalVariable>) -> u64 {
        let inner = &self.module.types[self.module.global_variables[handle].ty].inner;
        u64::from(inner.try_size(self.module.to_ctx()).unwrap_or(0)).max(4).next_multiple_of(4)
    }

    /// The variable of the scalars, if the signature has any.
    fn scalars(&self) -> Result<Option<Handle<GlobalVariable>>, String> {
        if self.signature.scalars.is_empty() {
            return Ok(None);
        }
        let binding = self.signature.buffers.len();
        let found = self.declared(|var| is_at(var, binding) || var.space == AddressSpace::Immediate);
        let wanted = format!("@group(0) @binding({binding}) var<uniform> name: Struct;");
        let count = counted(self.signature.scalars.len(), "scalar");
        let Some(handle) = found else {
            return Err(format!(
                "the shader has no variable for the {count} of the signature: declare a struct with as many members, and `{wanted}` or `var<immediate> name: Struct;`"
            ));
        };
        let var = &self.module.global_variables[handle];
        if matches!(var.space, AddressSpace::Uniform | AddressSpace::Immediate) {
            return Ok(Some(handle));
        }
        Err(format!(
            "{} is no uniform, and stands where the signature has {count}: declare `{wanted}`",
            self.name(var)
        ))
    }

    /// How the scalars get into their variable.
    fn params(&self, handle: Handle<GlobalVariable>, allowed: &Allowed) -> Result<Params, String> {
        let var = &self.module.global_variables[handle];
        let TypeInner::Struct { members, span } = &self.module.types[var.ty].inner else {
            let (var, ty) = (self.name(var), wgsl(self.module, var.ty));
            return Err(format!("{var} is `{ty}`, and is to be a struct with one member for each scalar"));
        };
        let scalars = &self.signature.scalars;
        if members.len() != scalars.len() {
            let (found, expected) = (counted(members.len(), "member"), counted(scalars.len(), "scalar"));
            let ty = wgsl(self.module, var.ty);
            return Err(format!(
                "the struct `{ty}` of {} has {found}, and the signature {expected}: {}",
                self.name(var),
                scalars.iter().map(Parameter::name).collect::<Vec<_>>().join("; ")
            ));
        }
        let fields = members.iter().zip(scalars).map(|(member, param)| self.field(var, member, param));
        let fields = fields.collect::<Result<Box<[_]>, _>>()?;
        let passing = self.passing(var.ty, *span, allowed);
        let step = if passing == Passing::Uniform { 16 } else { 4 };
        Ok(Params { passing, bytes: (*span as usize).next_multiple_of(step), fields })
    }

    fn field(&self, var: &GlobalVariable, member: &StructMember, param: &Parameter) -> Result<Field, String> {
        check_scalar(self.module, member.ty, &param.ty).map_err(|what| {
            let member = member.name.as_deref().unwrap_or_default();
            format!("member `{member}` of {} is {}: {what}", self.name(var), param.name())
        })?;
        let value = match param.kind {
            ParamKind::Len(_) => Value::Count,
            _ => Value::Bytes(param.ty.bytes),
        };
        Ok(Field { at: member.offset as usize, value })
    }

    /// Immediates where the device has them, and room for all.
    fn passing(&self, ty: Handle<Type>, span: u32, allowed: &Allowed) -> Passing {
        // Immediates cannot hold halves.
        if span <= allowed.immediates && !has_halves(self.module, ty) {
            Passing::Immediates
        } else {
            Passing::Uniform
        }
    }

    /// Refuses what the entry point has beside the variables of the signature.
    fn check_others(&self, taken: &[Handle<GlobalVariable>]) -> Result<(), String> {
        let globals = self.module.global_variables.iter();
        let mut others = globals.filter(|(handle, var)| is_bound(var) && !taken.contains(handle));
        // What no entry point of several uses may be another one's.
        let alone = self.module.entry_points.len() == 1;
        let Some((_, var)) = others.find(|(handle, _)| alone || self.is_used(*handle)) else { return Ok(()) };
        let buffers = counted(self.signature.buffers.len(), "buffer");
        let scalars = counted(self.signature.scalars.len(), "scalar");
        Err(format!(
            "{} belongs to no parameter: the signature has {buffers} and {scalars}, in group 0: the buffers from binding 0 on, then one struct of all scalars",
            self.name(var)
        ))
    }

    /// The variable that the entry point uses, of those that fit, or else any.
    fn declared(&self, fits: impl Fn(&GlobalVariable) -> bool) -> Option<Handle<GlobalVariable>> {
        let all = || self.module.global_variables.iter();
        let fitting = || all().filter(|(_, var)| fits(var)).map(|(handle, _)| handle);
        fitting().find(|handle| self.is_used(*handle)).or_else(|| fitting().next())
    }

    fn is_used(&self, handle: Handle<GlobalVariable>) -> bool {
        !self.info[handle].is_empty()
    }

    /// The variable, as messages name it.
    fn name(&self, var: &GlobalVariable) -> String {
        let name = var.name.as_deref().unwrap_or_default();
        match &var.binding {
            Some(at) => format!("`{name}` at `@group({}) @binding({})`", at.group, at.binding),
            None => format!("`{name}`"),
        }
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn is_at(var: &GlobalVariable, binding: usize) -> bool {
    var.binding.is_some_and(|at| at.group == 0 && at.binding as usize == binding)
}

fn is_bound(var: &GlobalVariable) -> bool {
    var.binding.is_some() || var.space == AddressSpace::Immediate
}

fn has_halves(module: &Module, ty: Handle<Type>) -> bool {
    match &module.types[ty].inner {
        TypeInner::Scalar(scalar) | TypeInner::Vector { scalar, .. } | TypeInner::Matrix { scalar, .. } => {
            *scalar == Scalar::F16
        }
        TypeInner::Array { base, .. } => has_halves(module, *base),
        TypeInner::Struct { members, .. } => members.iter().any(|member| has_halves(module, member.ty)),
        _ => false,
    }
}
