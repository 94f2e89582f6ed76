//! A device: its slots, its options, and what its streams share.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use static_assertions::assert_impl_all;

use crate::backend::host::{Faults, Host, HostOptions, Stepper};
use crate::backend::{Backend, Limits, Spares, Submitter};
use crate::callback;
use crate::capture::eviction::{self, Eviction};
use crate::capture::status::{CaptureStatus, DeviceCaptures, WindowId};
use crate::capture::window::Window;
use crate::error::{Error, Result};
use crate::failures::Failures;
use crate::memory::drops::{Backlog, DropQueue, Kept, Limit};
use crate::memory::pool::Pool;
use crate::memory::report::{self, MemoryReport};
use crate::memory::staging::Staging;
use crate::memory::tables::Tables;
use crate::memory::{self, Memory, MemoryUsage, reaper};
use crate::order::Mark;
use crate::poison::Poison;
use crate::state::State;
use crate::stream::Stream;
use crate::stream_id::StreamId;

/// A device: where streams run and buffers live. Cheap to clone; everything made on it keeps it alive.
///
/// A device has a fixed number of *slots*, the backend's own queues. Its streams, of which there may be any number,
/// fold onto them by their id.
pub struct Device<B: Backend = Host> {
    pub(crate) core: Arc<DeviceCore<B>>,
}

/// How to open a device.
#[derive(Debug)]
pub struct DeviceOptions<B: Backend = Host> {
    max_streams: usize,
    memory_limit: Option<usize>,
    staging_limit: usize,
    pending_limit: Limit,
    zeroing: Zeroing,
    backend: B::Options,
}

/// When fresh memory is zeroed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Zeroing {
    /// `alloc` reads as zero; `alloc_scratch` has unspecified contents.
    #[default]
    OnRequest,
    /// `alloc_scratch` reads as zero too, and no zeroing is left out because a kernel overwrites it.
    Always,
}

impl<B: Backend> Default for DeviceOptions<B> {
    fn default() -> Self {
        DeviceOptions {
            max_streams: 8,
            memory_limit: None,
            staging_limit: 64 << 20,
            pending_limit: Limit { items: 256, bytes: 32 << 20 },
            zeroing: Zeroing::default(),
            backend: B::Options::default(),
        }
    }
}

impl<B: Backend> Clone for DeviceOptions<B> {
    fn clone(&self) -> Self {
        DeviceOptions { backend: self.backend.clone(), ..*self }
    }
}

impl<B: Backend> DeviceOptions<B> {
    /// The usual options: 8 slots, no limit of device memory, 64 MiB of pinned host memory, and for each slot 256
    /// transfers or 32 MiB of host memory in flight.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many slots the device has, from 1 to 64 (out of range is brought into it).
    pub fn max_streams(mut self, slots: usize) -> Self {
        self.max_streams = slots.clamp(1, 64);
        self
    }

    /// The most bytes that the device may hold from the driver.
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// The most bytes of pinned host memory that the device may hold, through which writes and reads go. What finds no
    /// room there goes through the heap, which makes nobody wait either, but takes longer: on CUDA such a transfer is made
    /// in parts, between calls of the host and through one more pinned block that each slot then keeps. With 0, everything
    /// goes through the heap.
    pub fn staging_limit(mut self, bytes: usize) -> Self {
        self.staging_limit = bytes;
        self
    }

    /// How much host memory a slot may keep for transfers that the device has not done yet: how many of them, and how
    /// many bytes. Above it, the next operation waits until the oldest transfer is done, so that a stream that only
    /// writes keeps no more than this and one item (one a thread, where several share the slot).
    ///
    /// Nothing waits while it is recorded, and what a graph owns does not count. A stepped device runs what such a wait
    /// needs, unless it is held: then nothing waits, and the limit is none.
    pub fn pending_limit(mut self, transfers: usize, bytes: usize) -> Self {
        self.pending_limit = Limit { items: transfers, bytes: bytes as u64 };
        self
    }

    /// When fresh memory is zeroed.
    pub fn zeroing(mut self, zeroing: Zeroing) -> Self {
        self.zeroing = zeroing;
        self
    }

    /// Options of the backend's own.
    pub fn backend(mut self, options: B::Options) -> Self {
        self.backend = options;
        self
    }

    /// Changes the options of the backend's own, from what they are.
    pub fn map_backend(mut self, change: impl FnOnce(B::Options) -> B::Options) -> Self {
        self.backend = change(self.backend);
        self
    }
}

/// What everything made on a device shares.
///
/// In the order of its fields, those of a launch first and side by side: a launch comes after a driver that has emptied the
/// nearest caches, and each line of them that it needs takes as long as a dozen instructions.
#[repr(C)]
pub(crate) struct DeviceCore<B: Backend> {
    pub(crate) id: u32,
    pub(crate) zeroing: Zeroing,
    pub(crate) poison: Arc<Poison>,
    pub(crate) backend: B,
    pub(crate) slots: Box<[Slot<B>]>,
    pub(crate) pending_limit: Limit,
    pub(crate) limits: Limits,
    /// Taken before any slot's lock by whoever must look beyond its own slot (see [`crate::order`]).
    pub(crate) order: Mutex<()>,
    pub(crate) captures: DeviceCaptures,
    /// The open windows, so that any thread can evict one.
    pub(crate) windows: Mutex<Vec<Arc<Window<B>>>>,
    pub(crate) memory: Memory<B>,
    pub(crate) staging: Staging,
    /// Whose the device's own operations are, such as moves.
    pub(crate) by: Submitter,
    /// What raw sections share that name no token of their own; made for the first of them.
    pub(crate) sections: OnceLock<State<B>>,
    streams: AtomicU64,
    allocations: AtomicU64,
}

/// One of the backend's queues, and what belongs to it. In the order of its fields, as [`DeviceCore`] is.
#[repr(C, align(64))]
pub(crate) struct Slot<B: Backend> {
    lane: Mutex<Lane>,
    pub(crate) queue: B::Queue,
    /// What the lane's drop queue holds.
    pub(crate) backlog: Backlog,
    pub(crate) spares: Arc<Spares<B>>,
    pub(crate) pool: Mutex<Pool<B>>,
    pub(crate) tables: Mutex<Tables<B>>,
}

/// What a slot's lock guards: the numbering of its operations, and the records of all that the slot owns.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Lane {
    /// The last operation that was enqueued.
    pub(crate) seq: u64,
    /// Host memory that the operations of the slot may still touch.
    pub(crate) drops: DropQueue<Kept>,
}

impl<B: Backend> Slot<B> {
    #[inline]
    pub(crate) fn lane(&self) -> MutexGuard<'_, Lane> {
        self.lane.lock()
    }
}

impl<B: Backend> DeviceCore<B> {
    pub(crate) fn slot(&self, index: u32) -> &Slot<B> {
        #[allow(
            clippy::indexing_slicing,
            reason = "slot numbers come from `StreamId::slot` of this very device"
        )]
        &self.slots[index as usize]
    }

    pub(crate) fn lane(&self, slot: u32) -> MutexGuard<'_, Lane> {
        self.slot(slot).lane()
    }

    /// Whether the operation is done.
    pub(crate) fn passed(&self, mark: Mark) -> bool {
        self.backend.completed(&self.slot(mark.slot).queue) >= mark.seq
    }

    pub(crate) fn next_allocation(&self) -> u64 {
        // Only uniqueness matters; pools give the odd ones.
        self.allocations.fetch_add(2, Ordering::Relaxed)
    }
}

impl<B: Backend> Drop for DeviceCore<B> {
    fn drop(&mut self) {
        self.memory.graveyard.close();
    }
}

impl<B: Backend> Device<B> {
    /// Opens a device.
    ///
    /// # Errors
    /// What the driver says.
    pub fn open(options: DeviceOptions<B>) -> Result<Self> {
        static DEVICES: AtomicU32 = AtomicU32::new(0);
        callback::refuse("opening a device")?;
        let poison = Arc::new(Poison::default());
        let backend = B::open(&options.backend, &poison).map_err(|fault| poison.absorb(fault))?;
        let slots: Result<Vec<_>> = (0..options.max_streams.clamp(1, 64) as u32)
            .map(|index| {
                let spares = Spares::new();
                let queue = backend.queue(index, spares.clone()).map_err(|fault| poison.absorb(fault))?;
                Ok(Slot {
                    lane: Mutex::default(),
                    queue,
                    spares,
                    pool: Mutex::default(),
                    tables: Mutex::default(),
                    backlog: Backlog::default(),
                })
            })
            .collect();
        // Only uniqueness matters.
        let id = DEVICES.fetch_add(1, Ordering::Relaxed);
        let core = Arc::new(DeviceCore {
            id,
            limits: backend.limits(),
            backend,
            zeroing: options.zeroing,
            poison,
            slots: slots?.into(),
            order: Mutex::new(()),
            captures: DeviceCaptures::new(),
            windows: Mutex::default(),
            memory: Memory::new(options.memory_limit),
            staging: Staging::new(options.staging_limit),
            pending_limit: options.pending_limit,
            by: Submitter { stream: StreamId::of_device(id), failures: Arc::new(Failures::default()) },
            sections: OnceLock::new(),
            streams: AtomicU64::new(0),
            allocations: AtomicU64::new(0),
        });
        reaper::start(&core).map_err(|error| Error::Driver {
            call: crate::backend::Call::Open,
            message: error.to_string().into(),
        })?;
        Ok(Device { core })
    }

    /// A new stream, with an id that no other stream of this device has or will have.
    ///
    /// # Errors
    /// [`Error::DeviceLost`], and [`Error::InCallback`] inside a kernel or host callback.
    pub fn stream(&self) -> Result<Stream<crate::NoCapture, B>> {
        callback::refuse("making a stream")?;
        self.core.poison.check()?;
        let index = self.core.streams.fetch_add(1, Ordering::Relaxed);
        Ok(Stream::new(&self.core, StreamId::new(self.core.id, index)))
    }

    /// Which windows are open: a view that any thread may keep.
    pub fn captures(&self) -> CaptureStatus {
        self.core.captures.status()
    }

    /// Closes a window from any thread: nobody gets a graph, and the owner's next call returns [`Error::Evicted`].
    ///
    /// For a thread that opened a window and never came back: what the window pinned is let go at once. Buffers born
    /// in it are lost; bytes from outside are what they were, since nothing ran.
    ///
    /// # Errors
    /// [`Error::NotOpen`] if the window is closed already, or its owner is sealing it; nothing changes.
    pub fn evict(&self, window: WindowId) -> Result<Eviction> {
        callback::refuse("evicting a window")?;
        eviction::evict(&self.core, window)
    }

    /// What the device holds in bytes.
    pub fn memory_usage(&self) -> MemoryUsage {
        memory::usage(&self.core)
    }

    /// Where the device's memory is, pool by pool and graph by graph. Prints as a table.
    pub fn memory_report(&self) -> MemoryReport {
        report::report(&self.core)
    }

    /// How many slots the device has.
    pub fn max_streams(&self) -> usize {
        self.core.slots.len()
    }

    /// The number that tells this device from every other one of the process, as errors print it.
    pub fn index(&self) -> u32 {
        self.core.id
    }

    /// The fault that poisoned the device, once it is lost.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] with the first fault.
    pub fn check(&self) -> Result<()> {
        self.core.poison.check()
    }
}

impl Device<Host> {
    /// A host device with the usual options.
    ///
    /// # Errors
    /// What the system says of its threads.
    pub fn host() -> Result<Self> {
        Self::open(DeviceOptions::new())
    }

    /// A host device that runs nothing by itself, and the stepper that decides when queued work runs.
    ///
    /// Queued work keeps what it uses: a callback that owns a graph of the device, and is never stepped to, keeps the device.
    ///
    /// # Errors
    /// As for [`open`](Device::open).
    pub fn stepped(options: DeviceOptions<Host>) -> Result<(Self, Stepper)> {
        let backend = options.backend.clone().stepped();
        let device = Self::open(options.backend(backend))?;
        let stepper = Stepper::new(&device.core.backend);
        Ok((device, stepper))
    }

    /// The faults that calls of this device's driver meet, and how often each was called.
    pub fn faults(&self) -> Faults {
        self.core.backend.faults().clone()
    }

    /// The options that the device was opened with.
    pub fn host_options(&self) -> &HostOptions {
        self.core.backend.options()
    }
}

impl<B: Backend> Clone for Device<B> {
    fn clone(&self) -> Self {
        Device { core: self.core.clone() }
    }
}

impl<B: Backend> std::fmt::Debug for Device<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("backend", &B::NAME)
            .field("index", &self.core.id)
            .field("max_streams", &self.max_streams())
            .finish_non_exhaustive()
    }
}

assert_impl_all!(Device<Host>: Send, Sync, Clone);
assert_impl_all!(DeviceOptions<Host>: Send, Sync, Clone);
