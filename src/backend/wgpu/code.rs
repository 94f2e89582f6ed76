//! Loaded kernels.

#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use std::any::TypeId;
use std::collections::HashMap;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use static_assertions::assert_impl_all;
use wgpu::naga::valid::Capabilities;

use crate::backend::fault::Severity;
use crate::backend::wgpu::Source;
pub(crate) use crate::backend::wgpu::params::{Params, Passing};
use crate::backend::wgpu::reflect::{Allowed, Shader};
use crate::backend::wgpu::scope::{is_lost, lost, scoped};
use crate::backend::{Call, Fault};
use crate::callback::panic_message;
use crate::kernel::program::Sources;

/// A kernel of a wgpu device.
pub struct WgpuCode {
    /// No other code of this process has it.
    pub(crate) id: u64,
    pub(crate) pipeline: wgpu::ComputePipeline,
    /// Of group 0: a storage buffer for each buffer parameter, in their order, then the scalars' uniform, whose offset is
    /// dynamic, if they go by one.
    pub(crate) layout: wgpu::BindGroupLayout,
    /// One for each buffer parameter.
    pub(crate) bindings: Box<[Binding]>,
    pub(crate) params: Params,
}

/// What a buffer parameter is to the shader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    /// The fewest bytes that can be bound: what the shader declares, an array without a length counted as one element.
    pub(crate) least: u64,
}

/// The kernels of one device that are loaded, so that a program that is loaded again is not compiled again.
///
/// A kernel lives as long as somebody has it. Two threads that load one program at once compile it once, and whoever loads
/// another one meanwhile does not wait for them.
#[derive(Default)]
pub(crate) struct Codes {
    places: Mutex<HashMap<Key, Arc<Place>>>,
}

/// Where one kernel is, or will be when whoever holds the lock has compiled it.
type Place = Mutex<Weak<WgpuCode>>;

/// Everything that a kernel is made of, but for its name.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    text: Arc<str>,
    entry: Arc<str>,
    block: [u32; 3],
    params: Box<[(&'static str, TypeId)]>,
}

impl WgpuCode {
    /// Compares the shader with the signature, and compiles it.
    ///
    /// Compilers are large, and met with what their authors did not think of: one that panics has refused the shader.
    pub(crate) fn load(device: &wgpu::Device, source: &Source, sources: &Sources) -> Result<Self, Fault> {
        let compiled = AssertUnwindSafe(|| Self::compile(device, source, sources));
        catch_unwind(compiled).unwrap_or_else(|panic| {
            let message = format!("`{}`: its compiler panicked: {}", sources.name, panic_message(panic));
            Err(Fault::new(Call::Load, Severity::Call, message))
        })
    }

    fn compile(device: &wgpu::Device, source: &Source, sources: &Sources) -> Result<Self, Fault> {
        let shader = Shader::reflect(source, sources, &Allowed::on(device))
            .map_err(|message| Fault::new(Call::Load, Severity::Call, message))?;
        let Shader { module, entry, bindings, params } = shader;
        let made = scoped(device, Call::Load, || {
            let layout = bind_group_layout(device, &bindings, &params);
            let pipeline = pipeline(device, &layout, &params, module, &entry);
            (layout, pipeline)
        });
        let (layout, pipeline) = made.map_err(|fault| of(&sources.name, &fault))?;
        // A driver that fails at a pipeline may be lost with it, which is no error to wgpu: the pipeline is just invalid.
        if is_lost(device) {
            return Err(lost(Call::Load));
        }
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Ok(WgpuCode { id: NEXT.fetch_add(1, Ordering::Relaxed), pipeline, layout, bindings, params })
    }
}

impl Codes {
    /// The program's kernel; `None` if the program has no source for this backend.
    pub(crate) fn load(
        &self,
        device: &wgpu::Device,
        sources: &Sources,
    ) -> Result<Option<Arc<WgpuCode>>, Fault> {
        let Some(source) = &sources.wgsl else { return Ok(None) };
        let place = self.place(Key::of(source, sources));
        let mut place = place.lock();
        if let Some(code) = place.upgrade() {
            return Ok(Some(code));
        }
        let code = Arc::new(WgpuCode::load(device, source, sources)?);
        *place = Arc::downgrade(&code);
        Ok(Some(code))
    }

    /// A kernel of the library's own, which has a source.
    pub(crate) fn load_own(&self, device: &wgpu::Device, sources: &Sources) -> Result<Arc<WgpuCode>, Fault> {
        self.load(device, sources)?
            .ok_or_else(|| Fault::new(Call::Load, Severity::Call, "a kernel without WGSL"))
    }

    /// Where the kernel is. Places of kernels that are gone are given up, unless somebody is about to fill them.
    fn place(&self, key: Key) -> Arc<Place> {
        let mut places = self.places.lock();
        if let Some(place) = places.get(&key) {
            return place.clone();
        }
        places.retain(|_, place| Arc::strong_count(place) > 1 || place.lock().strong_count() > 0);
        places.entry(key).or_default().clone()
    }
}

impl Key {
    fn of(source: &Source, sources: &Sources) -> Self {
        let params = sources.types.iter().map(|ty| (ty.word, (ty.id)())).collect();
        Key { text: source.text.clone(), entry: source.entry.clone(), block: sources.block, params }
    }
}

impl Allowed {
    fn on(device: &wgpu::Device) -> Self {
        let (features, limits) = (device.features(), device.limits());
        let immediates = features.contains(wgpu::Features::IMMEDIATES);
        Allowed {
            capabilities: capabilities(features),
            immediates: if immediates { limits.max_immediate_size } else { 0 },
            buffers: limits.max_storage_buffers_per_shader_stage,
            shared: limits.max_compute_workgroup_storage_size,
        }
    }
}

/// What naga may let through. Of what depends on a feature, only that which a kernel without textures can use.
fn capabilities(features: wgpu::Features) -> Capabilities {
    use wgpu::Features as Has;
    let of_features = [
        (Has::SHADER_F64, Capabilities::FLOAT64),
        (Has::SHADER_F16, Capabilities::SHADER_FLOAT16),
        (Has::SHADER_I16, Capabilities::SHADER_INT16),
        (Has::SHADER_INT64, Capabilities::SHADER_INT64),
        (Has::SHADER_INT64_ATOMIC_MIN_MAX, Capabilities::SHADER_INT64_ATOMIC_MIN_MAX),
        (
            Has::SHADER_INT64_ATOMIC_ALL_OPS,
            Capabilities::SHADER_INT64_ATOMIC_ALL_OPS.union(Capabilities::SHADER_INT64_ATOMIC_MIN_MAX),
        ),
        (Has::SHADER_FLOAT32_ATOMIC, Capabilities::SHADER_FLOAT32_ATOMIC),
        (Has::SUBGROUP, Capabilities::SUBGROUP),
        (Has::SUBGROUP_BARRIER, Capabilities::SUBGROUP_BARRIER),
        (Has::EXPERIMENTAL_COOPERATIVE_MATRIX, Capabilities::COOPERATIVE_MATRIX),
        (Has::MEMORY_DECORATION_COHERENT, Capabilities::MEMORY_DECORATION_COHERENT),
        (Has::MEMORY_DECORATION_VOLATILE, Capabilities::MEMORY_DECORATION_VOLATILE),
    ];
    // A device does not tell whether it has this one, which wgpu looks at again.
    let mut allowed = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    for (feature, capability) in of_features {
        allowed.set(capability, allowed.contains(capability) || features.contains(feature));
    }
    allowed
}

fn bind_group_layout(device: &wgpu::Device, bindings: &[Binding], params: &Params) -> wgpu::BindGroupLayout {
    let entry = |binding: usize, ty, has_dynamic_offset, least: u64| wgpu::BindGroupLayoutEntry {
        binding: u32::try_from(binding).unwrap_or(u32::MAX),
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset, min_binding_size: NonZeroU64::new(least) },
        count: None,
    };
    // Read-write, whatever the shader does: wgpu refuses a buffer that a dispatch binds in both ways.
    let storage = wgpu::BufferBindingType::Storage { read_only: false };
    let buffers = bindings.iter().enumerate();
    let mut entries: Vec<_> =
        buffers.map(|(index, bound)| entry(index, storage, false, bound.least)).collect();
    if params.passing == Passing::Uniform {
        entries.push(entry(bindings.len(), wgpu::BufferBindingType::Uniform, true, params.bytes as u64));
    }
    device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries })
}

fn pipeline(
    device: &wgpu::Device,
    layout: &wgpu::BindGroupLayout,
    params: &Params,
    module: wgpu::naga::Module,
    entry: &str,
) -> wgpu::ComputePipeline {
    let immediates = if params.passing == Passing::Immediates { params.bytes } else { 0 };
    let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(layout)],
        immediate_size: u32::try_from(immediates).unwrap_or(u32::MAX),
    });
    let source = wgpu::ShaderSource::Naga(std::borrow::Cow::Owned(module));
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
    device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: Some(&layout),
        module: &module,
        entry_point: Some(entry),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    })
}

/// The fault, with the program's name.
fn of(name: &str, fault: &Fault) -> Fault {
    let severity = if fault.is_memory() { Severity::Memory } else { Severity::Call };
    Fault::new(fault.call(), severity, format!("`{name}`: {}", fault.message()))
}

assert_impl_all!(WgpuCode: Send, Sync);
