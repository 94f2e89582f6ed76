//! Which of the machine's adapters to take.

#![forbid(unsafe_code)]

use parking_lot::Mutex;
use wgpu::{AdapterInfo, Backend, Backends, DeviceType, InstanceFlags, PowerPreference};

use super::open::{self, Fallback};

/// What the options say about adapters.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) backends: Backends,
    pub(super) power: PowerPreference,
    pub(super) name: Option<String>,
    pub(super) fallback: Fallback,
}

impl Default for Wanted {
    fn default() -> Self {
        Wanted {
            backends: Backends::all(),
            power: PowerPreference::HighPerformance,
            name: None,
            fallback: Fallback::default(),
        }
    }
}

/// The adapters that are wanted, the best first; or what is missing.
///
/// OpenGL is asked only where no other interface has one: what its drivers show, others show better, and to load them takes
/// its time.
pub(super) fn adapters(wanted: &Wanted) -> Result<Vec<wgpu::Adapter>, String> {
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    for backends in [wanted.backends - Backends::GL, wanted.backends & Backends::GL] {
        for adapter in found(backends) {
            match refusal(wanted, &adapter) {
                None => taken.push(adapter),
                Some(why) => refused.push(format!("{}: {why}", describe(&adapter.get_info()))),
            }
        }
        if !taken.is_empty() {
            taken.sort_by_key(|adapter| rank(wanted.power, &adapter.get_info()));
            return Ok(taken);
        }
    }
    match refused.as_slice() {
        [] => Err(nothing(wanted.backends)),
        refused => Err(format!("no adapter is what the options ask for; there is {}", refused.join("; "))),
    }
}

fn found(backends: Backends) -> Vec<wgpu::Adapter> {
    if backends.is_empty() {
        return Vec::new();
    }
    let kept = instance(backends);
    // All OpenGL adapters of one instance share a context, and where two threads use it at once, wgpu panics.
    let instance = if backends.contains(Backends::GL) { fresh(backends) } else { kept };
    pollster::block_on(instance.enumerate_adapters(backends))
}

/// The instance of wgpu's for these interfaces, which this process makes once and keeps.
///
/// When the last one goes, wgpu unloads the drivers, under threads that a driver has made or has left something on: such a
/// process crashed at its end. And to make one takes longer than to open a device.
pub(super) fn instance(backends: Backends) -> wgpu::Instance {
    static KEPT: Mutex<Vec<(Backends, wgpu::Instance)>> = Mutex::new(Vec::new());
    let mut kept = KEPT.lock();
    if let Some((_, instance)) = kept.iter().find(|(of, _)| *of == backends) {
        return instance.clone();
    }
    let instance = fresh(backends);
    kept.push((backends, instance.clone()));
    instance
}

fn fresh(backends: Backends) -> wgpu::Instance {
    wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends,
        // Of wgpu's flags only the one that keeps an indirect dispatch within the limits: the validation of the driver's
        // interface, which debug builds ask for by default, prints.
        flags: InstanceFlags::VALIDATION_INDIRECT_CALL,
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    })
}

/// An adapter in messages.
pub(super) fn describe(info: &AdapterInfo) -> String {
    let kind = match info.device_type {
        DeviceType::Cpu => ", software",
        _ => "",
    };
    format!("`{}` ({}{kind})", info.name, interface(info.backend))
}

fn refusal(wanted: &Wanted, adapter: &wgpu::Adapter) -> Option<&'static str> {
    let info = adapter.get_info();
    let named = |part: &String| info.name.to_lowercase().contains(&part.to_lowercase());
    if !wanted.name.as_ref().is_none_or(named) {
        return Some("not of that name");
    }
    match (wanted.fallback, info.device_type) {
        (Fallback::Refused, DeviceType::Cpu) => return Some("software is refused"),
        (Fallback::Only, kind) if kind != DeviceType::Cpu => return Some("only software is asked for"),
        _ => {}
    }
    (!open::computes(adapter)).then_some("it cannot compute over buffers")
}

/// The smaller, the sooner taken.
fn rank(power: PowerPreference, info: &AdapterInfo) -> (u8, u8) {
    let kind = match (info.device_type, power) {
        (DeviceType::IntegratedGpu, PowerPreference::LowPower) => 0,
        (DeviceType::DiscreteGpu, _) => 1,
        (DeviceType::IntegratedGpu, _) => 2,
        (DeviceType::VirtualGpu, _) => 3,
        (DeviceType::Other, _) => 4,
        (DeviceType::Cpu, _) => 5,
    };
    let interface = match info.backend {
        Backend::Vulkan | Backend::Metal => 0,
        Backend::Dx12 => 1,
        _ => 2,
    };
    (kind, interface)
}

fn nothing(backends: Backends) -> String {
    let asked: Vec<_> = Backend::ALL
        .into_iter()
        .filter(|backend| backends.contains(Backends::from(*backend)))
        .map(interface)
        .collect();
    match asked.as_slice() {
        [] => "no adapter: the options ask for no interface at all".to_owned(),
        asked => format!(
            "no adapter: this machine has no driver for any of {}, or none that this process finds",
            asked.join(", ")
        ),
    }
}

fn interface(backend: Backend) -> &'static str {
    match backend {
        Backend::Noop => "no-op",
        Backend::Vulkan => "Vulkan",
        Backend::Metal => "Metal",
        Backend::Dx12 => "DirectX 12",
        Backend::Gl => "OpenGL",
        Backend::BrowserWebGpu => "WebGPU",
    }
}
