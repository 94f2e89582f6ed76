//! Whether a type of a shader's is what the signature says.

#![forbid(unsafe_code)]

use std::any::TypeId;

use wgpu::naga::{ArraySize, Handle, Module, Scalar, ScalarKind, Type, TypeInner, VectorSize};

use crate::kernel::signature::ParamType;

/// What a shader has to declare for a type of Rust's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A number, or two to four of them.
    Numbers { scalar: Scalar, lanes: u8 },
    /// What WGSL has no type for: words that hold several.
    Words,
    /// Whatever has its size.
    Plain,
}

impl Form {
    pub(crate) fn of(ty: &ParamType) -> Self {
        match numbers((ty.id)()).or_else(|| halves(ty)) {
            Some((scalar, lanes)) => Form::Numbers { scalar, lanes },
            None if is_small((ty.id)()) || !ty.bytes.is_multiple_of(4) => Form::Words,
            None => Form::Plain,
        }
    }

    /// The declaration of a variable's element that every such buffer can have.
    pub(crate) fn example(self, ty: &ParamType) -> String {
        match self {
            Form::Numbers { scalar, lanes: 1 } => name_of(scalar).into(),
            Form::Numbers { scalar, lanes: 3 } => format!("array<{}, 3>", name_of(scalar)),
            Form::Numbers { scalar, lanes } => format!("vec{lanes}<{}>", name_of(scalar)),
            Form::Words => "u32".into(),
            Form::Plain => ty.short_name(),
        }
    }
}

impl ParamType {
    /// The type's name, without the modules it is in.
    pub(crate) fn short_name(&self) -> String {
        let mut short = String::new();
        for part in (self.name)().split_inclusive(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')) {
            short.push_str(part.rsplit("::").next().unwrap_or(part));
        }
        short
    }
}

/// What is wrong with the variable of a buffer parameter, if anything: what it is, and what it is to be.
pub(crate) fn check_buffer(module: &Module, variable: Handle<Type>, ty: &ParamType) -> Result<(), String> {
    match &module.types[variable].inner {
        TypeInner::Array { base, stride, .. } => check_element(module, *base, *stride, ty),
        TypeInner::Struct { .. } => check_struct(module, variable, ty),
        other => check_element(module, variable, other.try_size(module.to_ctx()).unwrap_or(0), ty),
    }
}

/// What is wrong with the member of the scalars' struct that is to hold a value of type `ty`, if anything.
pub(crate) fn check_scalar(module: &Module, member: Handle<Type>, ty: &ParamType) -> Result<(), String> {
    let name = ty.short_name();
    let inner = &module.types[member].inner;
    let right = match Form::of(ty) {
        Form::Numbers { scalar, lanes: 1 } => *inner == TypeInner::Scalar(scalar),
        Form::Numbers { scalar, lanes } => {
            is_vector(inner, scalar, lanes) || is_tight_array(module, inner, scalar, lanes)
        }
        Form::Words => {
            return Err(format!("WGSL has no `{name}`: take a `u32` or an `i32` in its place"));
        }
        Form::Plain => {
            let bytes = inner.try_size(module.to_ctx()).unwrap_or(0);
            if bytes as usize == ty.bytes {
                return Ok(());
            }
            let (found, expected) = (wgsl(module, member), ty.bytes);
            return Err(format!(
                "the shader's `{found}` has {bytes} bytes, and the parameter's `{name}` has {expected}"
            ));
        }
    };
    if right {
        return Ok(());
    }
    let wanted = match Form::of(ty) {
        Form::Numbers { scalar, lanes } if lanes > 1 => format!("vec{lanes}<{}>", name_of(scalar)),
        form => form.example(ty),
    };
    Err(format!("it is `{}`, and is to be `{wanted}`", wgsl(module, member)))
}

/// The type as WGSL writes it.
pub(crate) fn wgsl(module: &Module, ty: Handle<Type>) -> String {
    let ty = &module.types[ty];
    match &ty.inner {
        TypeInner::Scalar(scalar) => name_of(*scalar).into(),
        TypeInner::Atomic(scalar) => format!("atomic<{}>", name_of(*scalar)),
        TypeInner::Vector { size, scalar } => format!("vec{}<{}>", lanes_of(*size), name_of(*scalar)),
        TypeInner::Matrix { columns, rows, scalar } => {
            format!("mat{}x{}<{}>", lanes_of(*columns), lanes_of(*rows), name_of(*scalar))
        }
        TypeInner::Array { base, size: ArraySize::Constant(size), .. } => {
            format!("array<{}, {size}>", wgsl(module, *base))
        }
        TypeInner::Array { base, .. } => format!("array<{}>", wgsl(module, *base)),
        _ => ty.name.clone().unwrap_or_else(|| "a type of another kind".into()),
    }
}

/// What WGSL calls a kind of numbers.
pub(crate) fn name_of(scalar: Scalar) -> &'static str {
    match (scalar.kind, scalar.width) {
        (ScalarKind::Float, 2) => "f16",
        (ScalarKind::Float, 4) => "f32",
        (ScalarKind::Float, 8) => "f64",
        (ScalarKind::Sint, 2) => "i16",
        (ScalarKind::Sint, 4) => "i32",
        (ScalarKind::Sint, 8) => "i64",
        (ScalarKind::Uint, 2) => "u16",
        (ScalarKind::Uint, 4) => "u32",
        (ScalarKind::Uint, 8) => "u64",
        (ScalarKind::Bool, _) => "bool",
        _ => "a number of another kind",
    }
}

fn check_element(module: &Module, base: Handle<Type>, stride: u32, ty: &ParamType) -> Result<(), String> {
    let inner = &module.types[base].inner;
    let form = Form::of(ty);
    let right = match form {
        Form::Numbers { scalar, lanes: 1 } => is_number(inner, scalar),
        Form::Numbers { scalar, lanes } => {
            let whole = is_vector(inner, scalar, lanes) || is_tight_array(module, inner, scalar, lanes);
            if whole && stride as usize != ty.bytes {
                return Err(wrong_stride(module, base, stride, ty));
            }
            whole || is_number(inner, scalar)
        }
        Form::Words => is_number(inner, Scalar::U32),
        Form::Plain if stride as usize == ty.bytes => return Ok(()),
        Form::Plain => return Err(wrong_stride(module, base, stride, ty)),
    };
    if right {
        return Ok(());
    }
    let (name, found, wanted) = (ty.short_name(), wgsl(module, base), form.example(ty));
    Err(match form {
        Form::Words => format!(
            "its elements are `{found}`, and WGSL has no `{name}`: make them words, `{wanted}`, each of which holds several"
        ),
        _ => format!("its elements are `{found}`, and those of the parameter `{name}`: make them `{wanted}`"),
    })
}

fn check_struct(module: &Module, variable: Handle<Type>, ty: &ParamType) -> Result<(), String> {
    let TypeInner::Struct { members, span } = &module.types[variable].inner else { return Ok(()) };
    let name = ty.short_name();
    let allowed = match Form::of(ty) {
        Form::Numbers { scalar, .. } => scalar,
        Form::Words => Scalar::U32,
        Form::Plain => {
            let last = members.last().map(|member| &module.types[member.ty].inner);
            return match last {
                Some(TypeInner::Array { base, size: ArraySize::Dynamic, stride }) => {
                    check_element(module, *base, *stride, ty)
                }
                _ if *span as usize == ty.bytes => Ok(()),
                _ => {
                    let (found, expected) = (wgsl(module, variable), ty.bytes);
                    let hint = vec3_hint(module, variable);
                    Err(format!(
                        "the shader's `{found}` has {span} bytes, and the parameter's `{name}` has {expected}{hint}"
                    ))
                }
            };
        }
    };
    for member in members {
        if let Some(other) = other_number(module, member.ty, allowed) {
            let member = member.name.as_deref().unwrap_or_default();
            let (found, wanted) = (name_of(other), name_of(allowed));
            return Err(format!(
                "its member `{member}` has numbers of type `{found}`, and the parameter's elements are `{name}`: make all of it `{wanted}`"
            ));
        }
    }
    Ok(())
}

fn wrong_stride(module: &Module, base: Handle<Type>, stride: u32, ty: &ParamType) -> String {
    let (name, bytes, found) = (ty.short_name(), ty.bytes, wgsl(module, base));
    let hint = vec3_hint(module, base);
    format!(
        "the shader's `{found}` takes {stride} bytes in an array, and the parameter's `{name}` has {bytes}{hint}"
    )
}

/// What to do about the trap that most wrong strides come from.
fn vec3_hint(module: &Module, ty: Handle<Type>) -> String {
    let Some(scalar) = vec3_within(module, ty) else { return String::new() };
    let number = name_of(scalar);
    let bytes = 4 * u32::from(scalar.width);
    format!(
        ": WGSL starts every `vec3<{number}>` at a multiple of {bytes}; write `array<{number}, 3>` in its place"
    )
}

/// The numbers of a vector of three that is in the type, if there is one.
fn vec3_within(module: &Module, ty: Handle<Type>) -> Option<Scalar> {
    match &module.types[ty].inner {
        TypeInner::Vector { size: VectorSize::Tri, scalar }
        | TypeInner::Matrix { rows: VectorSize::Tri, scalar, .. } => Some(*scalar),
        TypeInner::Array { base, .. } => vec3_within(module, *base),
        TypeInner::Struct { members, .. } => members.iter().find_map(|member| vec3_within(module, member.ty)),
        _ => None,
    }
}

/// Numbers of the type that are of another kind than `allowed`, if there are any.
fn other_number(module: &Module, ty: Handle<Type>, allowed: Scalar) -> Option<Scalar> {
    match &module.types[ty].inner {
        TypeInner::Scalar(scalar)
        | TypeInner::Atomic(scalar)
        | TypeInner::Vector { scalar, .. }
        | TypeInner::Matrix { scalar, .. } => Some(*scalar).filter(|scalar| *scalar != allowed),
        TypeInner::Array { base, .. } => other_number(module, *base, allowed),
        TypeInner::Struct { members, .. } => {
            members.iter().find_map(|member| other_number(module, member.ty, allowed))
        }
        _ => None,
    }
}

fn is_number(inner: &TypeInner, wanted: Scalar) -> bool {
    matches!(inner, TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) if *scalar == wanted)
}

fn is_vector(inner: &TypeInner, wanted: Scalar, lanes: u8) -> bool {
    matches!(inner, TypeInner::Vector { size, scalar } if *scalar == wanted && lanes_of(*size) == lanes)
}

/// Whether it is an array of so many numbers, one right after the other.
fn is_tight_array(module: &Module, inner: &TypeInner, wanted: Scalar, lanes: u8) -> bool {
    let TypeInner::Array { base, size: ArraySize::Constant(size), stride } = inner else { return false };
    let tight = *stride == u32::from(wanted.width) && size.get() == u32::from(lanes);
    tight && is_number(&module.types[*base].inner, wanted)
}

fn lanes_of(size: VectorSize) -> u8 {
    size as u8
}

/// What kind of numbers the type consists of, and how many.
fn numbers(id: TypeId) -> Option<(Scalar, u8)> {
    let kinds = [
        (Scalar::F32, up_to_4::<f32>()),
        (Scalar::F64, up_to_4::<f64>()),
        (Scalar::I32, up_to_4::<i32>()),
        (Scalar::U32, up_to_4::<u32>()),
        (Scalar::I64, up_to_4::<i64>()),
        (Scalar::U64, up_to_4::<u64>()),
        #[cfg(target_pointer_width = "64")]
        (Scalar::I64, up_to_4::<isize>()),
        #[cfg(target_pointer_width = "64")]
        (Scalar::U64, up_to_4::<usize>()),
    ];
    kinds.into_iter().find_map(|(scalar, ids)| {
        let lanes = (1u8..).zip(ids).find(|(_, of)| *of == id)?.0;
        Some((scalar, lanes))
    })
}

fn up_to_4<T: 'static>() -> [TypeId; 4] {
    [TypeId::of::<T>(), TypeId::of::<[T; 2]>(), TypeId::of::<[T; 3]>(), TypeId::of::<[T; 4]>()]
}

/// As [`numbers`], for halves. Rust has none yet, and the crates that do call them `f16`.
fn halves(ty: &ParamType) -> Option<(Scalar, u8)> {
    let name = ty.short_name();
    let lanes = match name.as_str() {
        "f16" => 1,
        "[f16; 2]" => 2,
        "[f16; 3]" => 3,
        "[f16; 4]" => 4,
        _ => return None,
    };
    (ty.bytes == 2 * usize::from(lanes)).then_some((Scalar::F16, lanes))
}

/// Whether it is a number that WGSL has no type for, or an array of such in a usual length.
fn is_small(id: TypeId) -> bool {
    fn lengths<T: 'static>() -> impl Iterator<Item = TypeId> {
        let long = [TypeId::of::<[T; 8]>(), TypeId::of::<[T; 16]>(), TypeId::of::<[T; 32]>()];
        up_to_4::<T>().into_iter().chain(long)
    }
    let mut small = lengths::<u8>().chain(lengths::<i8>()).chain(lengths::<u16>()).chain(lengths::<i16>());
    small.any(|of| of == id)
}
