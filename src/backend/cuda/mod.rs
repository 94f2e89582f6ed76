//! The CUDA backend: the driver's streams, memory and graphs.
//!
//! The core submits operations in program order for every byte, under the lock of a slot, so that taint is decided when an
//! operation is submitted: what reads tainted bytes never reaches the driver. The device orders what does by its streams
//! and events. Nothing here waits under a lock of the core's, but where the driver itself does, or refuses twice to order a
//! failure.

pub(crate) mod adopt;
pub(crate) mod beside;
pub(crate) mod builder;
#[cfg(feature = "nvrtc")]
pub(crate) mod cache;
pub(crate) mod callback;
pub(crate) mod code;
pub(crate) mod context;
pub(crate) mod event;
pub(crate) mod execute;
pub(crate) mod ferry;
mod fill;
pub(crate) mod graph;
pub(crate) mod guest;
pub(crate) mod landing;
pub(crate) mod late;
pub(crate) mod memory;
#[cfg(feature = "nvrtc")]
pub(crate) mod nvrtc;
pub(crate) mod pinned;
pub(crate) mod queue;
pub(crate) mod retire;
pub(crate) mod section;
pub(crate) mod source;
mod store;
pub(crate) mod sys;
#[cfg(feature = "nvrtc")]
pub(crate) mod text;
pub(crate) mod view;
pub(crate) mod watch;

use std::hint::cold_path;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use cudarc::driver::CudaContext;

#[cfg(feature = "nvrtc")]
pub use cache::KernelCache;
pub(crate) use source::Source;
#[cfg(feature = "nvrtc")]
pub use text::SourceText;

use crate::backend::exit;
use crate::backend::fault::Severity;
use crate::backend::sealed::Driver;
use crate::backend::{
    AtOnce, Backend, Call, Command, Fault, Fleeting, HostBytes, Limits, Spares, Submitter, Waiter,
};
use crate::callback as calls;
use crate::device::{Device, DeviceOptions};
use crate::error::{Error, Result as Outcome};
use crate::failures::Reports;
use crate::graph::commands::Commands;
use crate::graph::flow::Dag;
use crate::kernel::program::Sources;
use crate::poison::Poison;
use crate::profile::Clock;
use crate::stream_id::StreamId;
use beside::Resident;
use code::CudaCode;
use context::Context;
use event::Events;
use fill::Fill;
use graph::CudaExec;
use late::Late;
use memory::CudaMemory;
use pinned::CudaPinned;
use queue::CudaQueue;
use retire::Retired;
use section::{CudaSection, Idle};
use store::Store;
use watch::Watch;

/// The CUDA backend: NVIDIA's GPUs, through the driver of the machine.
///
/// # Calls that wait for the device
///
/// The driver makes a few calls wait until all work in its context is done, and keeps other threads from launches, copies
/// and most else meanwhile. Here these are the opening of a device, the loading of a kernel and, now and then, the end of
/// a recording or a raw section that is executed: the driver has room for executable graphs, and takes more when that is
/// used up. Seen with driver 580 on an H200: once for every 43 small graphs that are alive at the same time, and when a
/// graph is wider than any before it; never where dropped graphs make room for new ones. A
/// [host call](crate::Enqueue::host_call) that waits for a thread must not wait for one that makes such a call.
///
/// Launches, replays, transfers, allocations and drops do not wait like this. What the driver would have everybody wait
/// for, such as the unloading of a dropped kernel, is done when nobody has used a device of the context for a while; else
/// only once 256 MiB of it have gathered. A device that has no memory pools waits for pages that go back, too.
pub struct Cuda {
    machine: Arc<Machine>,
}

/// What everything of one device shares. Lives until the last of it is gone and the device is idle.
///
/// In the order of its fields: what a launch needs is side by side.
#[repr(C)]
pub(crate) struct Machine {
    in_flight: u64,
    pub(crate) late: Arc<Late>,
    pub(crate) watch: Watch,
    pub(crate) context: Context,
    pub(crate) poison: Arc<Poison>,
    pub(crate) events: Events,
    pub(crate) fill: Fill,
    pub(crate) store: Store,
    pub(crate) idle: Idle,
    pub(crate) resident: Arc<Resident>,
    /// Where compiled kernels are kept, if anywhere.
    #[cfg(feature = "nvrtc")]
    pub(crate) cache: Option<cache::Cache>,
    limits: Limits,
}

/// Options of a CUDA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaOptions {
    ordinal: usize,
    context: Option<Arc<CudaContext>>,
    in_flight: usize,
    #[cfg(feature = "nvrtc")]
    kernel_cache: KernelCache,
}

impl Default for CudaOptions {
    fn default() -> Self {
        CudaOptions {
            ordinal: 0,
            context: None,
            in_flight: 512,
            #[cfg(feature = "nvrtc")]
            kernel_cache: KernelCache::default(),
        }
    }
}

impl CudaOptions {
    /// The machine's first device.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which of the machine's devices, in the driver's order, from 0.
    pub fn ordinal(mut self, ordinal: usize) -> Self {
        self.ordinal = ordinal;
        self
    }

    /// The context to work in, the device's primary one or another: it says which device, whatever
    /// [`ordinal`](CudaOptions::ordinal) does, and lives as long as anything of the device does.
    ///
    /// Without one it is the primary context of the device, which most libraries use.
    pub fn context(mut self, context: Arc<CudaContext>) -> Self {
        self.context = Some(context);
        self
    }

    /// How many operations a slot has in flight before the next one waits for room: 512 unless said otherwise, 64 at least and
    /// 768 at most.
    ///
    /// A stream of the driver takes about a thousand calls, waits for other streams included. Above that the driver waits by
    /// itself, and with it whoever else needs the slot.
    pub fn in_flight(mut self, operations: usize) -> Self {
        self.in_flight = operations.clamp(64, 768);
        self
    }

    /// Where compiled CUDA C++ is kept from one run to the next. By default in the user's folder for caches.
    #[cfg(feature = "nvrtc")]
    pub fn kernel_cache(mut self, cache: KernelCache) -> Self {
        self.kernel_cache = cache;
        self
    }
}

impl Device<Cuda> {
    /// A CUDA device with the usual options: the `ordinal`-th of the machine, from 0.
    ///
    /// # Errors
    /// [`Error::Driver`], which says what is missing: a driver, a new enough one, the device.
    pub fn new(ordinal: usize) -> Outcome<Self> {
        Self::open(DeviceOptions::new().backend(CudaOptions::new().ordinal(ordinal)))
    }

    /// A CUDA device with the usual options, in a context that the program has already; see [`CudaOptions::context`] for
    /// other options.
    ///
    /// ```no_run
    /// use dacapo::cuda::{Cuda, cudarc::driver::CudaContext};
    /// use dacapo::prelude::*;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// let context = CudaContext::new(0)?;
    /// let theirs = context.new_stream()?;
    /// let weights = theirs.clone_htod(&[1.0f32; 1024])?;
    ///
    /// let device = Device::<Cuda>::from_context(context)?;
    /// let mut stream = device.stream()?;
    /// // No copy, and no wait: what the stream does from here on runs after what `theirs` was given.
    /// let weights = Buffer::from_cudarc(&mut stream, weights)?;
    /// assert_eq!(stream.read(&weights)?, [1.0; 1024]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Driver`], which says what is missing: a new enough driver, or what the context lacks.
    pub fn from_context(context: Arc<CudaContext>) -> Outcome<Self> {
        Self::open(DeviceOptions::new().backend(CudaOptions::new().context(context)))
    }
}

impl Machine {
    /// Remembers a fault that came where nobody can be told, if it is one that nobody can be spared.
    pub(crate) fn note(&self, fault: &Fault) {
        if fault.is_sticky() {
            self.poison.set(fault.clone());
        }
    }

    /// Gives the device up for a fault after which nothing can tell any more when the work on it is done.
    pub(crate) fn lose(&self, fault: &Fault) {
        self.poison.set(Fault::new(fault.call(), Severity::Sticky, fault.message().to_owned()));
    }

    /// Gives `item`, which nothing can use any more that is not in flight already, back to the driver later.
    pub(crate) fn retire(&self, item: Retired) {
        let marks = self.resident.queues().into_iter().map(|queue| {
            let submitted = queue.submitted();
            (queue, submitted)
        });
        self.resident.retirement.add(item, marks.collect());
    }

    /// Starts the threads of the device.
    fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let machine = self.clone();
        let named = std::thread::Builder::new().name("dacapo-cuda-watch".to_owned());
        named.spawn(move || {
            watch::run(&machine);
            let _hold = exit::hold();
            drop(machine);
        })?;
        let machine = self.clone();
        let named = std::thread::Builder::new().name("dacapo-cuda-retire".to_owned());
        named.spawn(move || retire::run(machine)).map(drop).inspect_err(|_| self.watch.end())
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        self.machine.resident.retirement.close();
    }
}

impl Backend for Cuda {}

#[diagnostic::do_not_recommend]
impl Driver for Cuda {
    const NAME: &'static str = "cuda";
    const SOURCE: &'static str = "ptx";
    // Kernel nodes that the device updates could do it, but what updates them is in a library of the toolkit's (the device
    // runtime), which nobody has who has but the driver.
    const REFUSES_INDIRECT: Option<&'static str> = Some(
        "the CUDA driver launches no number of blocks that is in a buffer; launch as many as there may be, and let each compare its number with the count, as an argument",
    );
    type Options = CudaOptions;
    type Queue = CudaQueue;
    type Memory = CudaMemory;
    type Code = CudaCode;
    type Section = CudaSection;
    type Exec = CudaExec;

    fn open(options: &CudaOptions, poison: &Arc<Poison>) -> Result<Self, Fault> {
        static DRIVER: Once = Once::new();
        let context = match &options.context {
            Some(theirs) => Context::shared(theirs)?,
            None => Context::open(options.ordinal)?,
        };
        exit::prepare(&DRIVER);
        let resident = Resident::new(&context, poison);
        let limits = context.limits()?;
        let fill = Fill::load(&context)?;
        let store = Store::new(&context)?;
        let machine = Arc::new(Machine {
            poison: poison.clone(),
            events: Events::default(),
            fill,
            store,
            late: Arc::default(),
            idle: Idle::default(),
            resident,
            context,
            watch: Watch::default(),
            #[cfg(feature = "nvrtc")]
            cache: options.kernel_cache.open(),
            limits,
            in_flight: options.in_flight as u64,
        });
        let started = machine.start();
        started.map_err(|error| Fault::new(Call::Open, Severity::Call, error.to_string()))?;
        Ok(Cuda { machine })
    }

    fn limits(&self) -> Limits {
        self.machine.limits
    }

    fn queue(&self, index: u32, _spares: Arc<Spares<Self>>) -> Result<CudaQueue, Fault> {
        CudaQueue::new(&self.machine, index)
    }

    fn allocate(&self, bytes: usize) -> Result<CudaMemory, Fault> {
        CudaMemory::allocate(&self.machine, bytes)
    }

    fn free(&self, memory: &CudaMemory) -> Result<(), Fault> {
        memory.free()
    }

    fn clock(&self) -> Clock {
        Clock::Device
    }

    fn address(memory: &CudaMemory, offset: usize) -> Option<u64> {
        Some(memory.address(offset))
    }

    fn pin(&self, bytes: usize) -> Result<Box<dyn HostBytes>, Fault> {
        Ok(Box::new(CudaPinned::zeroed(&self.machine, bytes)?))
    }

    fn runs_in_chunks(_code: &CudaCode) -> bool {
        false
    }

    fn load(&self, sources: &Sources) -> Result<Option<CudaCode>, Fault> {
        let Some(source) = &sources.cuda else { return Ok(None) };
        CudaCode::load(&self.machine, source, sources).map(Some)
    }

    fn begin(&self, _stream: StreamId) -> Result<(), Fault> {
        Ok(())
    }

    fn end(&self, _stream: StreamId) -> Result<(), Fault> {
        Ok(())
    }

    fn abandon(&self, _stream: StreamId) {}

    #[inline]
    fn throttle(&self, queue: &CudaQueue) {
        let limit = self.machine.in_flight;
        if queue.shared.is_ahead(limit) {
            cold_path();
            // Down to half, so that not each of the next operations waits for one.
            self.wait_for_room(queue, queue.shared.submitted().saturating_sub(limit / 2));
        }
        if queue.shared.ferry.is_full()
            && let Some(seq) = queue.shared.ferry.overdue(queue.shared.completed())
        {
            self.wait_for_room(queue, seq);
        }
    }

    fn wait_for_room(&self, queue: &CudaQueue, seq: u64) -> bool {
        const TICK: Duration = Duration::from_millis(100);
        while queue.shared.completed() < seq {
            if self.machine.poison.is_set() {
                return false;
            }
            if let Err(fault) = queue.shared.wait(&self.machine, seq, Instant::now().checked_add(TICK)) {
                self.machine.note(&fault);
                return false;
            }
        }
        // What a read landed in is free only then.
        queue.shared.landings.land(&self.machine, queue.shared.completed());
        true
    }

    fn wait_for(&self, queue: &CudaQueue, on: &CudaQueue, seq: u64) -> Result<(), Fault> {
        let _bound = self.machine.context.bind()?;
        queue.shared.wait_for(&self.machine, &on.shared, seq)
    }

    fn order_failure(&self, queue: &CudaQueue, on: &CudaQueue, seq: u64) {
        // The failure itself is remembered at once. But who waits for it must wait for what it waited for.
        let bound = self.machine.context.bind();
        if bound.and_then(|_bound| queue.shared.wait_for(&self.machine, &on.shared, seq)).is_ok() {
            return;
        }
        if let Err(fault) = on.shared.wait(&self.machine, seq, None) {
            self.machine.lose(&fault);
        }
    }

    fn submit(
        &self,
        queue: &CudaQueue,
        seq: u64,
        by: &Submitter,
        command: &mut Command<Self>,
    ) -> Result<(), Fault> {
        execute::submit(queue, seq, by, command)
    }

    const LAUNCHES_AT_ONCE: bool = true;

    #[inline]
    fn is_settled(&self) -> bool {
        !self.machine.late.is_pending()
    }

    #[inline]
    fn launch(&self, queue: &CudaQueue, seq: u64, launch: AtOnce<'_, Self>) -> Option<Fault> {
        execute::launch_at_once(queue, seq, launch)
    }

    fn submit_failure(&self, queue: &CudaQueue, seq: u64, command: &mut Command<Self>, cause: Arc<Error>) {
        execute::submit_failure(queue, seq, command.view(), &cause);
    }

    fn seal(
        &self,
        commands: &Arc<Commands<Self>>,
        dag: &Dag,
        fleeting: Vec<Fleeting<Self>>,
    ) -> Result<CudaExec, Fault> {
        CudaExec::seal(&self.machine, commands, dag, fleeting)
    }

    fn replay(
        &self,
        queue: &CudaQueue,
        seq: u64,
        by: &Submitter,
        exec: &Arc<CudaExec>,
        reports: &Arc<Reports>,
    ) -> Result<(), Fault> {
        exec.replay(queue, seq, by, reports)
    }

    fn replay_failure(&self, queue: &CudaQueue, seq: u64, exec: &Arc<CudaExec>, cause: Arc<Error>) {
        exec.fail(queue, seq, &cause);
    }

    fn completed(&self, queue: &CudaQueue) -> u64 {
        queue.shared.landed()
    }

    fn block(
        &self,
        queue: &CudaQueue,
        seq: u64,
        _waiter: Waiter,
        deadline: Option<Instant>,
    ) -> Result<bool, Fault> {
        queue.shared.block(&self.machine, seq, deadline)
    }
}

impl Drop for Machine {
    /// On the thread that retires, when all is idle; anywhere, when the device could not be opened or was lost.
    fn drop(&mut self) {
        // Nothing, but on a lost device.
        self.resident.retirement.leak();
        if calls::inside() {
            // On a lost device only. A callback may not call the driver, which keeps what there is.
            self.context.abandon();
            self.events.leak();
            self.idle.leak();
            return;
        }
        let Ok(_relaxed) = self.context.relaxed() else { return };
        self.events.clear();
        self.idle.clear();
        let mut left = vec![self.fill.retire()];
        for queue in self.resident.take_queues() {
            if let Ok(shared) = Arc::try_unwrap(queue) {
                left.extend(shared.retire());
            }
        }
        retire::part_with(self, left);
        self.store.close();
    }
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cuda").field("limits", &self.machine.limits).finish_non_exhaustive()
    }
}
