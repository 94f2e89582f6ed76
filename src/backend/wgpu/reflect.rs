//! Shaders, compared with the signatures that they are given with.

#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use wgpu::naga::back::PipelineConstants;
use wgpu::naga::back::pipeline_constants::{PipelineConstantError, process_overrides};
use wgpu::naga::front::wgsl::{Frontend, Options};
use wgpu::naga::valid::{Capabilities, FunctionInfo, ModuleInfo, ValidationFlags, Validator};
use wgpu::naga::{AddressSpace, EntryPoint, GlobalVariable, Handle, Module, ShaderStage};

use crate::backend::wgpu::code::Binding;
use crate::backend::wgpu::params::{Params, Passing};
use crate::backend::wgpu::variables::{Found, Variables};
use crate::backend::wgpu::words::Parameters;
use crate::backend::wgpu::{Source, footprint, rewrite};
use crate::kernel::program::Sources;

/// A shader that does what its signature says, as wgpu is given it.
#[derive(Debug)]
pub(crate) struct Shader {
    pub(crate) module: Module,
    /// The name of its function.
    pub(crate) entry: String,
    pub(crate) bindings: Box<[Binding]>,
    pub(crate) params: Params,
}

/// What a device lets shaders do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed {
    /// Without immediates, which are the library's to use.
    pub(crate) capabilities: Capabilities,
    /// Bytes of immediates; none on a device without.
    pub(crate) immediates: u32,
    /// Storage buffers of one shader.
    pub(crate) buffers: u32,
    /// Bytes of the workgroup variables of one shader.
    pub(crate) shared: u32,
}

impl Shader {
    /// Reads the source and compares it with the signature. What is wrong comes in words, with the program's name.
    pub(crate) fn reflect(source: &Source, sources: &Sources, allowed: &Allowed) -> Result<Self, String> {
        Self::checked(source, sources, allowed).map_err(|message| format!("`{}`: {message}", sources.name))
    }

    fn checked(source: &Source, sources: &Sources, allowed: &Allowed) -> Result<Self, String> {
        let signature = Parameters::of(sources);
        signature.check(allowed)?;
        let (mut module, info) = parse(source, allowed)?;
        let index = entry(&module, &source.entry)?;
        let found = Variables::new(&module, info.get_entry_point(index), &signature).find(allowed)?;
        rewritten(&mut module, &found, source, allowed)?;
        let (module, info) = resolved(module, info, source)?;
        let index = entry(&module, &source.entry)?;
        if let Some(entry) = module.entry_points.get(index) {
            check_block(entry, sources.block)?;
            check_footprint(&module, info.get_entry_point(index), entry, allowed)?;
        }
        let Found { bindings, params, .. } = found;
        Ok(Shader { module, entry: source.entry.to_string(), bindings, params })
    }
}

/// The module, valid for the device, but for where its scalars are.
fn parse(source: &Source, allowed: &Allowed) -> Result<(Module, ModuleInfo), String> {
    let wrong = |text: String| format!("its WGSL is refused\n{}", text.trim_end());
    let capabilities = allowed.capabilities | Capabilities::IMMEDIATES;
    let mut options = Options::new();
    options.capabilities = capabilities;
    let parsed = Frontend::new_with_options(options).parse(&source.text);
    let module = parsed.map_err(|error| wrong(error.emit_to_string(&source.text)))?;
    let validated = Validator::new(ValidationFlags::all(), capabilities).validate(&module);
    let info = validated.map_err(|error| wrong(error.emit_to_string(&source.text)))?;
    Ok((module, info))
}

/// The place of the entry point among those of the module.
fn entry(module: &Module, name: &str) -> Result<usize, String> {
    let entries = &module.entry_points;
    let Some(index) = entries.iter().position(|entry| entry.name == name) else {
        let names: Vec<_> = entries.iter().map(|entry| format!("`{}`", entry.name)).collect();
        return Err(match names.as_slice() {
            [] => format!("the shader has no entry point: mark `{name}` as `@compute @workgroup_size(..)`"),
            names => format!("the shader has no entry point `{name}`; it has {}", names.join(", ")),
        });
    };
    match entries.get(index).map(|entry| entry.stage) {
        Some(ShaderStage::Compute) => Ok(index),
        _ => Err(format!("its entry point `{name}` is not `@compute`, which kernels are")),
    }
}

/// Puts every variable where the library has it.
fn rewritten(module: &mut Module, found: &Found, source: &Source, allowed: &Allowed) -> Result<(), String> {
    rewrite::open_buffers(module, &found.tables);
    let Some(scalars) = found.scalars else { return Ok(()) };
    if found.params.passing == Passing::Immediates {
        rewrite::into_immediates(module, scalars);
        return Ok(());
    }
    let was = module.global_variables[scalars].space;
    rewrite::into_uniform(module, scalars, u32::try_from(found.bindings.len()).unwrap_or(u32::MAX));
    if was == AddressSpace::Immediate {
        check_uniform(module, scalars, source, allowed)?;
    }
    Ok(())
}

/// Whether what was written as immediates can be a uniform, whose arrays and inner structs start at multiples of 16.
fn check_uniform(
    module: &Module,
    scalars: Handle<GlobalVariable>,
    source: &Source,
    allowed: &Allowed,
) -> Result<(), String> {
    let capabilities = allowed.capabilities | Capabilities::IMMEDIATES;
    let validated = Validator::new(ValidationFlags::all(), capabilities).validate(module);
    let Err(error) = validated else { return Ok(()) };
    let name = module.global_variables[scalars].name.as_deref().unwrap_or_default();
    let text = error.emit_to_string(&source.text);
    Err(format!(
        "this device passes the scalars, `{name}`, in a uniform, for want of immediates or room in them, and its struct is none: write it as a `var<uniform>` to have that checked everywhere\n{}",
        text.trim_end()
    ))
}

/// The module with the defaults of its `override` constants, and without the other entry points.
fn resolved(module: Module, info: ModuleInfo, source: &Source) -> Result<(Module, ModuleInfo), String> {
    let entry = Some((ShaderStage::Compute, &*source.entry));
    let resolved = process_overrides(&module, &info, entry, &PipelineConstants::default());
    let (module, info) = resolved.map_err(|error| match error {
        PipelineConstantError::MissingValue(name) => {
            format!("`override {name}` has no default, and gets no other value: give it one")
        }
        PipelineConstantError::ValidationError(error) => {
            format!("its WGSL is refused\n{}", error.emit_to_string(&source.text).trim_end())
        }
        other => format!("its `override` constants: {other}"),
    })?;
    Ok((module.into_owned(), info.into_owned()))
}

fn check_block(entry: &EntryPoint, block: [u32; 3]) -> Result<(), String> {
    if entry.workgroup_size == block {
        return Ok(());
    }
    let ([x, y, z], [p, q, r]) = (entry.workgroup_size, block);
    Err(format!(
        "the shader has `@workgroup_size({x}, {y}, {z})`, and the program blocks of {p} x {q} x {r} threads: say `.block({x}, {y}, {z})`"
    ))
}

fn check_footprint(
    module: &Module,
    info: &FunctionInfo,
    entry: &EntryPoint,
    allowed: &Allowed,
) -> Result<(), String> {
    let (bytes, most) = (footprint::private(module, info, entry), footprint::MOST_PRIVATE);
    if bytes > most {
        return Err(format!(
            "each thread of the shader has {bytes} bytes of variables of its own, and {most} are allowed: keep large arrays in a buffer or in workgroup memory"
        ));
    }
    let (bytes, most) = (footprint::shared(module, info), u64::from(allowed.shared));
    if bytes > most {
        return Err(format!(
            "the shader has {bytes} bytes of workgroup variables, and this device allows {most} (wgpu's limit `max_compute_workgroup_storage_size`)"
        ));
    }
    Ok(())
}
