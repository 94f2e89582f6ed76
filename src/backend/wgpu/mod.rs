//! The wgpu backend: software graphs on every GPU that wgpu reaches.
//!
//! One queue of wgpu's serves all slots. Each slot has an encoder of its own, into which whoever submits an operation encodes
//! it at once; what a slot waits for is submitted first. So the order in which operations are encoded is an order of the bytes,
//! and taint is decided then. What is full is submitted by a thread of the device's, or by whoever cannot wait for it, in that
//! order. A slot that must wait for the host, for a callback, falls behind: its thread goes on from there.

#![forbid(unsafe_code)]

pub(crate) mod adopt;
pub(crate) mod bind;
pub(crate) mod bytes;
pub(crate) mod code;
pub(crate) mod element;
pub(crate) mod encoder;
pub(crate) mod footprint;
pub(crate) mod graph;
pub(crate) mod kept;
pub(crate) mod landing;
pub(crate) mod memory;
pub(crate) mod notice;
pub(crate) mod open;
pub(crate) mod outbox;
pub(crate) mod pace;
pub(crate) mod params;
pub(crate) mod pinned;
pub(crate) mod queue;
pub(crate) mod reflect;
pub(crate) mod rewrite;
pub(crate) mod run;
pub(crate) mod scope;
pub(crate) mod scratch;
mod select;
pub(crate) mod source;
pub(crate) mod stamp;
pub(crate) mod steps;
pub(crate) mod texture;
pub(crate) mod uniforms;
pub(crate) mod upload;
pub(crate) mod variables;
mod wait;
pub(crate) mod watch;
pub(crate) mod words;
pub(crate) mod worker;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use smallvec::SmallVec;

pub use open::{Fallback, WgpuOptions};
pub(crate) use source::Source;
pub use texture::{EnqueueTexture, Texels};

use crate::backend::exit;
use crate::backend::fault::Severity;
use crate::backend::sealed::Driver;
use crate::backend::{Backend, Call, Command, Fault, Fleeting, HostBytes, Limits, Spares, Submitter, Waiter};
use crate::callback::OnDevice;
use crate::device::{Device, DeviceOptions};
use crate::error::{Error, Result as Outcome};
use crate::failures::Reports;
use crate::graph::commands::Commands;
use crate::graph::flow::Dag;
use crate::kernel::program::Sources;
use crate::poison::Poison;
use crate::profile::Clock;
use crate::stream_id::StreamId;
use bytes::ByteKernels;
use code::{Codes, WgpuCode};
use graph::WgpuExec;
use landing::{Arrivals, Pads};
use memory::WgpuMemory;
use open::Opened;
use outbox::Outbox;
use pace::Pace;
use pinned::HeapBytes;
use queue::{Shared, WgpuQueue};
use stamp::Clockwork;
use texture::WgpuSection;
use uniforms::Constants;
use upload::Chunks;
use watch::Watch;

/// The wgpu backend: GPUs of every maker, through Vulkan, Metal, DirectX 12 or OpenGL.
///
/// # Devices that come and go
///
/// NVIDIA's Vulkan driver for Linux (seen with 580.159.04, with and without wgpu) can hang a process for ever where one thread
/// destroys a device while another thread ends that has called Vulkan. So a device that this library opened there, and that the
/// program was shown nothing of (see [`Device::wgpu_device`]), is not destroyed when it is dropped: its memory is given back, and
/// the next [`Device::open`] finds it. A program that brings [devices of its own](WgpuOptions::parts) had better have one, and
/// keep it for as long as threads come and go.
pub struct Wgpu {
    machine: Arc<Machine>,
}

/// What everything of one device shares.
pub(crate) struct Machine {
    pub(crate) me: Weak<Machine>,
    /// A poll found the driver's device gone: the next one would only find it again.
    gone: AtomicBool,
    /// The program was shown what is wgpu's, and may have it still.
    lent: AtomicBool,
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) limits: wgpu::Limits,
    opened: Opened,
    pub(crate) poison: Arc<Poison>,
    pub(crate) queues: Mutex<SmallVec<[Arc<Shared>; 8]>>,
    pub(crate) pace: Pace,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) watch: Watch,
    pub(crate) arrivals: Arrivals,
    pub(crate) chunks: Chunks,
    pub(crate) pads: Pads,
    pub(crate) clockwork: Clockwork,
    pub(crate) clock: Clock,
    /// Scalars of launches, where the device has no immediates.
    pub(crate) uniforms: Constants,
    /// What fills repeat.
    pub(crate) patterns: Constants,
    codes: Codes,
    pub(crate) bytes: ByteKernels,
    /// Up to so many bytes are moved by those.
    pub(crate) by_kernel: u64,
    /// What an argument without elements is bound to: a shader has no other way to be given nothing.
    pub(crate) nothing: WgpuMemory,
    /// Memory of the program's that is gone from here, and that groups may still be bound to.
    pub(crate) departed: Mutex<Vec<u64>>,
    pub(crate) bind_groups: usize,
    pub(crate) in_flight: u64,
}

impl Device<Wgpu> {
    /// A wgpu device with the usual options, on the machine's fastest adapter.
    ///
    /// # Errors
    /// [`Error::Driver`], which says what is missing: a driver, an adapter that computes.
    pub fn new() -> Outcome<Self> {
        Self::open(DeviceOptions::new())
    }

    /// A wgpu device with the usual options, on a device and a queue that the program has already; see
    /// [`WgpuOptions::parts`] for other options and for what that means to the program.
    ///
    /// # Errors
    /// [`Error::Driver`], which says what the device lacks, or that it is lost.
    pub fn from_parts(device: wgpu::Device, queue: wgpu::Queue) -> Outcome<Self> {
        Self::open(DeviceOptions::new().backend(WgpuOptions::new().parts(device, queue)))
    }

    /// The device of wgpu's, for what a program makes on it itself: textures to copy from, buffers to
    /// [adopt](crate::Buffer::from_wgpu). To destroy it is to lose this device.
    ///
    /// On a device that this library opened, its handlers of errors and of its loss are the library's: an error that no scope
    /// of the program's catches is a fault that poisons the device. A scope that the program has open on the thread that launches
    /// may catch one of a launch, whose submission then loses the device.
    pub fn wgpu_device(&self) -> &wgpu::Device {
        &self.core.backend.machine.lent().device
    }

    /// The queue of wgpu's, which runs what the program submits itself between what the library submits.
    pub fn wgpu_queue(&self) -> &wgpu::Queue {
        &self.core.backend.machine.lent().queue
    }
}

impl Machine {
    fn open(options: &WgpuOptions, poison: &Arc<Poison>) -> Result<Self, Fault> {
        static DRIVER: Once = Once::new();
        let opened = open::open(options, poison)?;
        exit::prepare(&DRIVER);
        let (device, queue, limits) = (opened.device.clone(), opened.queue.clone(), opened.limits.clone());
        let kind = device.adapter_info().device_type;
        let pace = Pace::of(kind);
        let clock = if opened.features.contains(stamp::FEATURES) { Clock::Device } else { Clock::Host };
        let codes = Codes::default();
        let nothing = wgpu::BufferDescriptor {
            label: Some("dacapo nothing"),
            size: 256,
            usage: WgpuMemory::USAGE,
            mapped_at_creation: false,
        };
        let nothing = opened.create(Call::Open, |device| device.create_buffer(&nothing))?;
        Ok(Machine {
            me: Weak::new(),
            gone: AtomicBool::new(false),
            lent: AtomicBool::new(false),
            bytes: ByteKernels::load(&device, &codes)?,
            by_kernel: bytes::by_kernel(kind),
            nothing: WgpuMemory::new(nothing),
            device,
            queue,
            limits,
            opened,
            poison: poison.clone(),
            queues: Mutex::default(),
            pace,
            outbox: Arc::new(Outbox::new(pace.patience)),
            watch: Watch::default(),
            arrivals: Arrivals::default(),
            chunks: Chunks::default(),
            pads: Pads::default(),
            clockwork: Clockwork::default(),
            clock,
            uniforms: Constants::new(wgpu::BufferUsages::UNIFORM),
            patterns: Constants::new(wgpu::BufferUsages::STORAGE),
            codes,
            departed: Mutex::default(),
            bind_groups: options.kept_bind_groups(),
            in_flight: options.most_in_flight() as u64,
        })
    }

    /// Notes that the program was shown what is wgpu's.
    fn lent(&self) -> &Self {
        // Relaxed, here and below: whoever lets go of the machine came after all who used it.
        self.lent.store(true, Ordering::Relaxed);
        self
    }

    fn is_lent(&self) -> bool {
        self.lent.load(Ordering::Relaxed)
    }

    /// Whether the device's handler of errors is ours.
    pub(crate) fn hears_errors(&self) -> bool {
        self.opened.is_ours()
    }

    /// What the starts of bindings are multiples of.
    pub(crate) fn alignment(&self) -> u64 {
        u64::from(self.limits.min_storage_buffer_offset_alignment).max(memory::WORD)
    }

    /// How many operations one submission has at most, unless they are a replay.
    pub(crate) fn most_at_once(&self) -> u32 {
        u32::try_from(self.in_flight / 2).unwrap_or(u32::MAX)
    }

    /// Lets wgpu look what is done, and tell: nothing lands before [`Arrivals::land`]. To be called under no lock, since
    /// callbacks of whoever shares the device run as well.
    pub(crate) fn poll(&self, how: wgpu::PollType) -> scope::Polled {
        // Callbacks of the program's that run in here must not wait for what this thread is in the middle of.
        let _on_device = OnDevice::enter();
        if self.gone.load(Ordering::Relaxed) {
            return scope::Polled::Unsubmitted;
        }
        match scope::poll(&self.device, how) {
            Ok(polled) => polled,
            Err(fault) => {
                self.lose(&fault);
                // Relaxed: at worst one more poll.
                self.gone.store(true, Ordering::Relaxed);
                scope::Polled::Unsubmitted
            }
        }
    }

    /// Makes something that is to be relied on: neither refused nor, on a lost device, invalid without a word.
    pub(crate) fn create<T>(&self, call: Call, make: impl FnOnce(&wgpu::Device) -> T) -> Result<T, Fault> {
        self.opened.create(call, make).inspect_err(|fault| {
            if fault.is_sticky() {
                self.lose(fault);
            }
        })
    }

    /// Finds out whether the device was lost without a word.
    pub(crate) fn check(&self, call: Call) {
        if !self.poison.is_set()
            && let Some(fault) = self.opened.is_lost(call)
        {
            self.lose(&fault);
        }
    }

    /// Gives the device up for a fault after which nobody can tell any more what was done.
    pub(crate) fn lose(&self, fault: &Fault) {
        self.poison.set(Fault::new(fault.call(), Severity::Sticky, fault.message().to_owned()));
    }

    /// Lets go of what refers to memory that is given back.
    pub(crate) fn forget(&self, memory: u64) {
        let queues = self.queues.lock().clone();
        queues.iter().for_each(|queue| queue.state.lock().groups.forget(memory));
    }
}

impl Drop for Wgpu {
    fn drop(&mut self) {
        self.machine.outbox.end();
        self.machine.watch.end();
    }
}

impl Backend for Wgpu {}

#[diagnostic::do_not_recommend]
impl Driver for Wgpu {
    const NAME: &'static str = "wgpu";
    const SOURCE: &'static str = "wgsl";
    const SECTION: &'static str = texture::COPY;
    type Options = WgpuOptions;
    type Queue = WgpuQueue;
    type Memory = WgpuMemory;
    type Code = Arc<WgpuCode>;
    type Section = WgpuSection;
    type Exec = WgpuExec;

    fn open(options: &WgpuOptions, poison: &Arc<Poison>) -> Result<Self, Fault> {
        let mut machine = Machine::open(options, poison)?;
        let machine = Arc::new_cyclic(|me| {
            machine.me = me.clone();
            machine
        });
        let watched = machine.clone();
        let thread = std::thread::Builder::new().name("dacapo-wgpu-watch".to_owned());
        let started = thread.spawn(move || watch::run(watched));
        started.map_err(|error| Fault::new(Call::Open, Severity::Call, error.to_string()))?;
        Ok(Wgpu { machine })
    }

    fn limits(&self) -> Limits {
        open::limits(&self.machine.opened)
    }

    fn queue(&self, index: u32, _spares: Arc<Spares<Self>>) -> Result<WgpuQueue, Fault> {
        Ok(WgpuQueue::new(&self.machine, index))
    }

    fn allocate(&self, bytes: usize) -> Result<WgpuMemory, Fault> {
        WgpuMemory::allocate(&self.machine, bytes)
    }

    fn free(&self, memory: &WgpuMemory) -> Result<(), Fault> {
        // That is all: the buffer goes with its last owner, and wgpu keeps what is in flight.
        self.machine.forget(memory.id);
        Ok(())
    }

    fn clock(&self) -> Clock {
        self.machine.clock
    }

    fn address(_memory: &WgpuMemory, _offset: usize) -> Option<u64> {
        None
    }

    fn pin(&self, bytes: usize) -> Result<Box<dyn HostBytes>, Fault> {
        Ok(Box::new(HeapBytes::zeroed(bytes)))
    }

    fn runs_in_chunks(_code: &Arc<WgpuCode>) -> bool {
        false
    }

    fn load(&self, sources: &Sources) -> Result<Option<Arc<WgpuCode>>, Fault> {
        self.machine.codes.load(&self.machine.device, sources)
    }

    fn begin(&self, _stream: StreamId) -> Result<(), Fault> {
        Ok(())
    }

    fn end(&self, _stream: StreamId) -> Result<(), Fault> {
        Ok(())
    }

    fn abandon(&self, _stream: StreamId) {}

    fn throttle(&self, queue: &WgpuQueue) {
        queue.throttle();
    }

    fn wait_for_room(&self, queue: &WgpuQueue, seq: u64) -> bool {
        queue.shared.block(&self.machine, seq, None).unwrap_or(false)
    }

    fn wait_for(&self, queue: &WgpuQueue, on: &WgpuQueue, seq: u64) -> Result<(), Fault> {
        queue.wait_for(&on.shared, seq)
    }

    fn order_failure(&self, queue: &WgpuQueue, on: &WgpuQueue, seq: u64) {
        // Refused is only a thread that could not be started.
        if let Err(fault) = queue.wait_for(&on.shared, seq) {
            self.machine.lose(&fault);
        }
    }

    fn submit(
        &self,
        queue: &WgpuQueue,
        seq: u64,
        by: &Submitter,
        command: &mut Command<Self>,
    ) -> Result<(), Fault> {
        queue.submit(seq, by, command)
    }

    fn submit_failure(&self, queue: &WgpuQueue, seq: u64, command: &mut Command<Self>, cause: Arc<Error>) {
        queue.submit_failure(seq, command, cause);
    }

    fn seal(
        &self,
        commands: &Arc<Commands<Self>>,
        _dag: &Dag,
        fleeting: Vec<Fleeting<Self>>,
    ) -> Result<WgpuExec, Fault> {
        WgpuExec::seal(&self.machine, commands, fleeting)
    }

    fn replay(
        &self,
        queue: &WgpuQueue,
        seq: u64,
        by: &Submitter,
        exec: &Arc<WgpuExec>,
        reports: &Arc<Reports>,
    ) -> Result<(), Fault> {
        queue.replay(seq, by, exec, reports)
    }

    fn replay_failure(&self, queue: &WgpuQueue, seq: u64, exec: &Arc<WgpuExec>, cause: Arc<Error>) {
        queue.replay_failure(seq, exec, cause);
    }

    fn completed(&self, queue: &WgpuQueue) -> u64 {
        queue.shared.completed()
    }

    fn block(
        &self,
        queue: &WgpuQueue,
        seq: u64,
        _waiter: Waiter,
        deadline: Option<Instant>,
    ) -> Result<bool, Fault> {
        queue.shared.block(&self.machine, seq, deadline)
    }
}

impl std::fmt::Debug for Wgpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wgpu").field("adapter", &self.machine.opened.adapter).finish_non_exhaustive()
    }
}
