//! What a backend supplies: queues, pages, commands, fences, sealed graphs. Never an ordering rule; those live once,
//! in the core.

pub(crate) mod command;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) mod exit;
pub(crate) mod fault;
pub mod host;
pub(crate) mod launch_unchecked;
pub(crate) mod outcome;
pub(crate) mod section;
#[cfg(feature = "wgpu")]
pub(crate) mod wgpu;

use std::sync::Arc;
use std::time::Instant;

pub(crate) use command::{Command, CommandRef, Contents, Fleeting, Job, Page, Region, Spares};
use fault::Severity;
pub use fault::{Call, Fault};

use crate::error::Error;
use crate::failures::{Failures, Reports};
use crate::graph::commands::Commands;
use crate::graph::flow::Dag;
use crate::poison::Poison;
use crate::profile::Clock;
use crate::stream_id::StreamId;

/// Where work runs: [`Host`](host::Host), and with their features CUDA and wgpu.
///
/// Sealed: the safety of a replay rests on what a backend does, so that only this crate can be one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a backend of dacapo",
    label = "not a backend",
    note = "the backends are `dacapo::Host` and, behind their features, CUDA and wgpu"
)]
pub trait Backend: sealed::Driver {}

pub(crate) mod sealed {
    use super::*;
    use crate::kernel::program::Sources;

    /// What every driver can do. Calls that may fail return a [`Fault`]; the core decides what that means.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` is not a backend of dacapo",
        label = "not a backend",
        note = "the safety of a replay rests on what a backend does, so that no other can be made; write `B: Backend` for all of them"
    )]
    pub trait Driver: Sized + Send + Sync + 'static {
        /// The name in messages.
        const NAME: &'static str;
        /// The method of `Program` that supplies this backend's source.
        const SOURCE: &'static str;
        /// What a [`Section`](Driver::Section) is called in listings: the method that makes one.
        const SECTION: &'static str = "raw";
        /// Why no launch can take its number of blocks from a buffer, where none can.
        const REFUSES_INDIRECT: Option<&'static str> = None;
        /// Options for opening a device.
        type Options: Clone + Send + Sync + Default + std::fmt::Debug;
        /// One queue, whose work runs in order.
        type Queue: Send + Sync;
        /// One allocation of the driver.
        type Memory: Send + Sync;
        /// A loaded kernel.
        type Code: Send + Sync;
        /// What another library enqueued, to be run later; no value, where none can.
        type Section: Send + Sync;
        /// A sealed graph.
        type Exec: Send + Sync;

        fn open(options: &Self::Options, poison: &Arc<Poison>) -> Result<Self, Fault>;
        fn limits(&self) -> Limits;
        fn queue(&self, index: u32, spares: Arc<Spares<Self>>) -> Result<Self::Queue, Fault>;

        fn allocate(&self, bytes: usize) -> Result<Self::Memory, Fault>;
        /// Gives memory back, when everything that was enqueued on it has passed. On a fault it is still held.
        fn free(&self, memory: &Self::Memory) -> Result<(), Fault>;

        /// Whose clock stamps are read from.
        fn clock(&self) -> Clock;

        /// Where the byte at `offset` is, on a backend whose memory has addresses.
        fn address(memory: &Self::Memory, offset: usize) -> Option<u64>;

        /// Host memory of exactly `bytes` bytes, a power of two, that the device copies to and from without a detour.
        ///
        /// It starts at a multiple of 256, and owns what it takes to be given back, which its drop does.
        fn pin(&self, bytes: usize) -> Result<Box<dyn HostBytes>, Fault>;

        /// Whether scratch memory that is read before it is written is an error.
        fn refuses_unwritten_reads(&self) -> bool {
            false
        }

        /// Whether the kernel's outputs are divided along the last extent of its grid.
        fn runs_in_chunks(code: &Self::Code) -> bool;

        fn load(&self, sources: &Sources) -> Result<Option<Self::Code>, Fault>;

        /// Called when a stream starts to record, and when it stops: what must never happen in between can be
        /// detected.
        fn begin(&self, stream: StreamId) -> Result<(), Fault>;
        fn end(&self, stream: StreamId) -> Result<(), Fault>;
        fn abandon(&self, stream: StreamId);

        /// Blocks while the queue holds as much work as it may. Called with no lock held.
        fn throttle(&self, queue: &Self::Queue);
        /// Blocks until the `seq`-th operation is done, as [`throttle`](Driver::throttle) does. Returns whether it is: not
        /// on a lost device, nor where it would be for the caller to make the device run.
        fn wait_for_room(&self, queue: &Self::Queue, seq: u64) -> bool;
        /// Makes what follows on `queue` wait for the `seq`-th operation of `on`.
        fn wait_for(&self, queue: &Self::Queue, on: &Self::Queue, seq: u64) -> Result<(), Fault>;
        /// Orders the failure that is enqueued next on `queue` after the `seq`-th operation of `on`, where
        /// [`wait_for`](Driver::wait_for) was refused. Never fails: it asks nothing of the driver.
        fn order_failure(&self, queue: &Self::Queue, on: &Self::Queue, seq: u64);
        /// Enqueues `command` as the `seq`-th operation. On a fault nothing was enqueued, and `command` is whole.
        fn submit(
            &self,
            queue: &Self::Queue,
            seq: u64,
            by: &Submitter,
            command: &mut Command<Self>,
        ) -> Result<(), Fault>;
        /// Whether launches come by [`launch`](Driver::launch).
        const LAUNCHES_AT_ONCE: bool = false;
        /// Whether nothing that is in flight can still taint bytes that were found clean. On the path of every launch that
        /// comes by `launch`.
        fn is_settled(&self) -> bool {
            false
        }
        /// Enqueues a launch on clean bytes as the `seq`-th operation, on a backend that keeps nothing of its arguments; all
        /// others get a command. Returns the fault that kept it from being enqueued.
        fn launch(&self, _queue: &Self::Queue, _seq: u64, _launch: AtOnce<'_, Self>) -> Option<Fault> {
            Some(Fault::new(Call::Launch, Severity::Call, "a launch without its command"))
        }
        /// Enqueues, as the `seq`-th operation, that what `command` was to write was not written. Never fails: it
        /// is how a failure is remembered. What it leaves of the command is let go of by whoever calls, under no lock.
        fn submit_failure(
            &self,
            queue: &Self::Queue,
            seq: u64,
            command: &mut Command<Self>,
            cause: Arc<Error>,
        );

        /// Turns a recording into what can be replayed. `commands` are in the order of recording, `dag` their edges; the
        /// graph has them as well.
        /// Every replay starts with `fleeting` as if it were new scratch memory.
        fn seal(
            &self,
            commands: &Arc<Commands<Self>>,
            dag: &Dag,
            fleeting: Vec<Fleeting<Self>>,
        ) -> Result<Self::Exec, Fault>;
        /// Enqueues a replay. What fails while it runs goes to `reports` as well.
        fn replay(
            &self,
            queue: &Self::Queue,
            seq: u64,
            by: &Submitter,
            exec: &Arc<Self::Exec>,
            reports: &Arc<Reports>,
        ) -> Result<(), Fault>;
        /// Like [`submit_failure`](Driver::submit_failure), for everything that the graph writes.
        fn replay_failure(&self, queue: &Self::Queue, seq: u64, exec: &Arc<Self::Exec>, cause: Arc<Error>);

        /// The last operation of `queue` that is known to be done. On the path of every launch: no more than an atomic
        /// load, so that it may lag behind what the device has done; [`block`](Driver::block) never does.
        fn completed(&self, queue: &Self::Queue) -> u64;
        /// Blocks until the `seq`-th operation is done, the deadline has passed, or the device is lost. Returns
        /// whether it is done.
        fn block(
            &self,
            queue: &Self::Queue,
            seq: u64,
            waiter: Waiter,
            deadline: Option<Instant>,
        ) -> Result<bool, Fault>;
    }
}

/// A launch as a backend takes it that keeps nothing of its arguments.
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only CUDA takes launches so"))]
pub struct AtOnce<'l, B: sealed::Driver> {
    pub(crate) code: &'l B::Code,
    pub(crate) blocks: &'l [u64; 3],
    pub(crate) block: &'l [u32; 3],
    /// Where the bytes of each buffer start, in the order of the parameters; 0 for one that has none.
    pub(crate) places: &'l [u64],
    /// Packed, in the order of the parameters.
    pub(crate) scalars: &'l [u8],
}

/// Host memory of the driver's.
pub trait HostBytes: Send + Sync {
    /// All of it.
    fn bytes(&self) -> &[u8];
    /// All of it, to be overwritten.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Who waits: a stream of the user's, or the library on its own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiter {
    /// The stream that was asked to wait.
    Stream(StreamId),
    /// Nobody's stream: a ticket or a future.
    Anyone,
    /// The library's own thread, which must never make work run.
    Reaper,
}

/// Whose operation it is: who is to hear of a failure, and which stream to blame.
#[derive(Clone)]
pub struct Submitter {
    pub(crate) stream: StreamId,
    pub(crate) failures: Arc<Failures>,
}

/// What a device can address and launch.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub(crate) max_buffer: usize,
    pub(crate) max_blocks: [u64; 3],
    pub(crate) max_block: [u64; 3],
    pub(crate) max_threads_per_block: u64,
    pub(crate) alignment: usize,
}
