//! Opening: which adapter, with which limits and features, or the program's own device.

#![forbid(unsafe_code)]

use std::sync::Arc;

use wgpu::{Backends, DownlevelFlags, Features, PowerPreference};

use super::select::{self, Wanted};
use super::{kept, scope};
use crate::backend::fault::Severity;
use crate::backend::{Call, Fault};
use crate::poison::Poison;

/// Options of a wgpu device.
///
/// ```no_run
/// use dacapo::prelude::*;
/// use dacapo::wgpu::{Fallback, Wgpu, WgpuOptions};
/// use dacapo::DeviceOptions;
///
/// # fn main() -> dacapo::Result<()> {
/// let options = WgpuOptions::new().adapter("radeon").fallback(Fallback::Refused);
/// let device = Device::<Wgpu>::open(DeviceOptions::new().backend(options))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct WgpuOptions {
    wanted: Wanted,
    parts: Option<(wgpu::Device, wgpu::Queue)>,
    in_flight: usize,
    bind_groups: usize,
}

/// What to do with adapters that compute on the CPU, such as lavapipe and WARP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fallback {
    /// Take one if there is no other adapter.
    #[default]
    LastResort,
    /// Take none.
    Refused,
    /// Take nothing else.
    Only,
}

impl Default for WgpuOptions {
    fn default() -> Self {
        WgpuOptions { wanted: Wanted::default(), parts: None, in_flight: 1024, bind_groups: 4096 }
    }
}

impl WgpuOptions {
    /// The machine's fastest adapter, whatever its interface.
    pub fn new() -> Self {
        Self::default()
    }

    /// Through which interfaces adapters are looked for: all that this build of `wgpu` has, unless said otherwise.
    pub fn backends(mut self, backends: Backends) -> Self {
        self.wanted.backends = backends;
        self
    }

    /// Which of several adapters to take: the fastest, unless said otherwise.
    pub fn power_preference(mut self, preference: PowerPreference) -> Self {
        self.wanted.power = preference;
        self
    }

    /// Only an adapter whose name contains this, in whatever case.
    pub fn adapter(mut self, name: impl Into<String>) -> Self {
        self.wanted.name = Some(name.into());
        self
    }

    /// What to do with adapters that compute on the CPU: they are taken where there is no other, unless said otherwise.
    pub fn fallback(mut self, fallback: Fallback) -> Self {
        self.wanted.fallback = fallback;
        self
    }

    /// The device to work on, and its queue, which a program has already; no other option about adapters counts then.
    ///
    /// What the program set on the device stays: its handler of uncaptured errors, which is called for none of ours, and
    /// its callback for the loss of the device. Its limits and features are what there is: a device that is opened for
    /// more than drawing had better be given those of its adapter.
    ///
    /// The library polls the device and submits to its queue, inside which wgpu runs the callbacks of whoever has some
    /// waiting, also on threads of the library's: those of the program's must not panic, nor wait for a lock that anybody
    /// holds while he calls this library, nor call it other than by dropping what is of it. An error of wgpu's that one of
    /// them causes is taken for the library's.
    ///
    /// What the library has of the device goes a moment after the last of its own devices, streams and buffers on it, on a thread
    /// of the library's. On one driver that is better not the end of the device: see [`Wgpu`](crate::wgpu::Wgpu).
    pub fn parts(mut self, device: wgpu::Device, queue: wgpu::Queue) -> Self {
        self.parts = Some((device, queue));
        self
    }

    /// How many operations a slot has in flight before the next one waits for room: 1,024 unless said otherwise, 64 at
    /// least.
    pub fn in_flight(mut self, operations: usize) -> Self {
        self.in_flight = operations.max(64);
        self
    }

    /// How many bind groups a slot keeps for launches to come: 4,096 unless said otherwise. With 0 none is kept, and every
    /// launch outside a graph makes its own.
    pub fn bind_groups(mut self, entries: usize) -> Self {
        self.bind_groups = entries;
        self
    }

    pub(crate) fn most_in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn kept_bind_groups(&self) -> usize {
        self.bind_groups
    }
}

/// An open device of wgpu's.
pub(crate) struct Opened {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    whose: Whose,
    poison: Arc<Poison>,
    pub(crate) limits: wgpu::Limits,
    pub(crate) features: Features,
    /// The adapter's name and interface, for messages.
    pub(crate) adapter: String,
}

/// Whose a device is, and so who hears of its errors and its loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// Opened here: errors outside every scope, and its loss, poison it at once.
    Ours,
    /// The program's: nobody tells us of its loss, which must be [asked](Opened::is_lost) for.
    Theirs,
}

impl Opened {
    pub(super) fn is_ours(&self) -> bool {
        self.whose == Whose::Ours
    }

    /// Whether the device is lost or destroyed: the sticky fault that then poisons it.
    ///
    /// On a lost device wgpu drops most calls without a word: what it makes is invalid, what is submitted never runs. So
    /// this is to be asked wherever silence must not pass for success: after making what is handed out
    /// ([`create`](Opened::create)), after each submit, whenever a wait finds that nothing moves, and when a mapping is
    /// refused. It costs a microsecond or a few.
    pub(crate) fn is_lost(&self, call: Call) -> Option<Fault> {
        let is_lost = match self.whose {
            // We are told of it, but not at once: of a device that the program has destroyed, only by a later poll.
            Whose::Ours => self.poison.is_set() || scope::is_lost(&self.device),
            Whose::Theirs => scope::is_lost(&self.device),
        };
        is_lost.then(|| scope::lost(call))
    }

    /// Makes something of wgpu's that is to be relied on: neither refused nor, on a lost device, invalid without a word.
    pub(crate) fn create<T>(&self, call: Call, make: impl FnOnce(&wgpu::Device) -> T) -> Result<T, Fault> {
        let made = scope::scoped(&self.device, call, || make(&self.device))?;
        match self.is_lost(call) {
            Some(fault) => Err(fault),
            None => Ok(made),
        }
    }
}

/// Opens what the options ask for.
pub(crate) fn open(options: &WgpuOptions, poison: &Arc<Poison>) -> Result<Opened, Fault> {
    let opened = match &options.parts {
        // Whose handlers stay as they are. The last of it may go on a thread of ours, after the program's instance: one of the
        // library's keeps the driver loaded.
        Some((device, queue)) => {
            select::instance(wgpu::Backends::from(device.adapter_info().backend));
            describe(device.clone(), queue.clone(), Whose::Theirs, poison)
        }
        None => ours(&options.wanted, poison)?,
    };
    match refusal(&opened) {
        Some(why) => Err(refused(format!("{}: {why}", opened.adapter))),
        None => Ok(opened),
    }
}

/// What can be addressed and launched.
pub(crate) fn limits(opened: &Opened) -> crate::backend::Limits {
    let limits = &opened.limits;
    // A multiple of what a binding starts and ends at; and what can be allocated can be bound.
    let most = limits.max_buffer_size.min(limits.max_storage_buffer_binding_size);
    // And a place in it fits the `u32` that shaders count in.
    let most = most.min(u32::MAX.into()) & !255;
    crate::backend::Limits {
        max_buffer: usize::try_from(most).unwrap_or(usize::MAX),
        max_blocks: [most_blocks(limits).into(); 3],
        max_block: [
            u64::from(limits.max_compute_workgroup_size_x),
            u64::from(limits.max_compute_workgroup_size_y),
            u64::from(limits.max_compute_workgroup_size_z),
        ],
        max_threads_per_block: u64::from(limits.max_compute_invocations_per_workgroup),
        alignment: 256,
    }
}

/// How many blocks a launch can have in a dimension.
pub(crate) fn most_blocks(limits: &wgpu::Limits) -> u32 {
    // Drivers were seen to report more groups in a dimension than they run. This many run everywhere, and with them an
    // invocation's position in the grid fits the `u32` that a kernel sees.
    limits.max_compute_workgroups_per_dimension.min(65_535)
}

/// A device of our own, on the best adapter that gives one.
fn ours(wanted: &Wanted, poison: &Arc<Poison>) -> Result<Opened, Fault> {
    let mut failures = String::new();
    for adapter in select::adapters(wanted).map_err(refused)? {
        let kept = kept::take(&adapter.get_info());
        match kept.map_or_else(|| request(&adapter), Ok) {
            Ok((device, queue)) => return Ok(watched(device, queue, poison)),
            Err(error) => failures += &format!("; {}: {error}", select::describe(&adapter.get_info())),
        }
    }
    Err(refused(format!("no adapter opens a device{failures}")))
}

fn request(adapter: &wgpu::Adapter) -> Result<(wgpu::Device, wgpu::Queue), wgpu::RequestDeviceError> {
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("dacapo"),
        required_features: adapter.features() & useful(),
        // All of them: the usual ones stop at bindings of 128 MiB and eight buffers a kernel.
        required_limits: adapter.limits(),
        // Pages are large and few, so that sub-allocation of the driver's memory would only add to ours.
        memory_hints: wgpu::MemoryHints::MemoryUsage,
        ..Default::default()
    };
    pollster::block_on(adapter.request_device(&descriptor))
}

/// A device of our own whose errors and loss poison it: before any other call, so that nothing can go wrong unheard.
fn watched(device: wgpu::Device, queue: wgpu::Queue, poison: &Arc<Poison>) -> Opened {
    let (loss, stray) = (poison.clone(), poison.clone());
    device.set_device_lost_callback(move |reason, message| {
        loss.set(Fault::new(Call::Execute, Severity::Sticky, loss_message(reason, &message)));
    });
    device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
        let Some(error) = scope::heard(error) else { return };
        let message = format!("wgpu reports an error that no call of ours expected: {}", scope::text(&error));
        stray.set(Fault::new(Call::Execute, Severity::Sticky, message));
    }));
    describe(device, queue, Whose::Ours, poison)
}

fn describe(device: wgpu::Device, queue: wgpu::Queue, whose: Whose, poison: &Arc<Poison>) -> Opened {
    let (limits, features) = (device.limits(), device.features());
    let adapter = select::describe(&device.adapter_info());
    Opened { device, queue, whose, poison: poison.clone(), limits, features, adapter }
}

/// What the backend and its kernels use where the adapter has it.
///
/// Mappable storage is not among it: a page that the host can map lies where a discrete GPU reads it through the bus.
fn useful() -> Features {
    Features::IMMEDIATES
        | Features::TIMESTAMP_QUERY
        | Features::TIMESTAMP_QUERY_INSIDE_ENCODERS
        | Features::TIMESTAMP_QUERY_INSIDE_PASSES
        | Features::SHADER_F16
        | Features::SHADER_F64
        | Features::SHADER_INT64
        | Features::SHADER_INT64_ATOMIC_MIN_MAX
        | Features::SHADER_INT64_ATOMIC_ALL_OPS
        | Features::SHADER_FLOAT32_ATOMIC
        | Features::SUBGROUP
        | Features::SUBGROUP_BARRIER
}

/// Why the device cannot be worked with, if it cannot.
fn refusal(opened: &Opened) -> Option<&'static str> {
    let limits = &opened.limits;
    if opened.is_lost(Call::Open).is_some() {
        return Some("the device is lost or destroyed already");
    }
    if limits.max_compute_workgroups_per_dimension == 0 || limits.max_compute_invocations_per_workgroup == 0 {
        return Some(
            "its limits allow no compute shader; open it with more than `downlevel_webgl2_defaults`",
        );
    }
    if limits.max_storage_buffers_per_shader_stage < LEAST_BUFFERS {
        return Some(
            "its limits allow fewer than 4 storage buffers a shader; open it with `adapter.limits()`",
        );
    }
    if limits.min_storage_buffer_offset_alignment > 256 {
        return Some("its storage buffers are bound at multiples of more than 256 bytes");
    }
    (!is_pair(opened)).then_some("the queue is another device's")
}

/// Whether the queue is the device's.
fn is_pair(opened: &Opened) -> bool {
    let some = wgpu::BufferDescriptor {
        label: None,
        size: 4,
        usage: wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    };
    let made = scope::scoped(&opened.device, Call::Open, || opened.device.create_buffer(&some));
    // Three bytes are no words.
    made.is_ok_and(|buffer| {
        scope::refusal(&opened.device, || opened.queue.write_buffer(&buffer, 0, &[0; 3])).is_some()
    })
}

/// Of storage buffers, what every adapter with compute shaders has, and what our own kernels need.
pub(super) const LEAST_BUFFERS: u32 = 4;

/// Whether the adapter can compute at all.
pub(super) fn computes(adapter: &wgpu::Adapter) -> bool {
    adapter.get_downlevel_capabilities().flags.contains(DownlevelFlags::COMPUTE_SHADERS)
        && adapter.limits().max_storage_buffers_per_shader_stage >= LEAST_BUFFERS
}

fn loss_message(reason: wgpu::DeviceLostReason, message: &str) -> String {
    match (reason, message.trim()) {
        (wgpu::DeviceLostReason::Destroyed, _) => "the device was destroyed".to_owned(),
        (_, "") => "the driver gives no reason".to_owned(),
        (_, message) => message.to_owned(),
    }
}

fn refused(message: String) -> Fault {
    Fault::new(Call::Open, Severity::Call, message)
}
