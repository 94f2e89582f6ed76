//! The host as a device: asynchronous, always there, and strict.
//!
//! Each slot has a worker thread, or, on a stepped device, runs when the test says so. Kernels are safe closures over
//! slices of the device's memory; that those slices are never used twice at once is what this module relies on the
//! core's ordering for, and what it checks in debug builds.

pub(crate) mod args;
pub(crate) mod code;
pub(crate) mod crew;
pub(crate) mod execute;
pub(crate) mod faults;
pub(crate) mod graph;
pub(crate) mod memory;
pub(crate) mod pinned;
pub(crate) mod queue;
pub(crate) mod schedule;
pub(crate) mod stepper;
#[cfg(all(test, debug_assertions, not(loom)))]
mod tests;

use std::convert::Infallible;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;

pub(crate) use args::HostArgs;
pub use code::Chunk;
pub(crate) use code::HostCode;
pub use faults::Faults;
pub use stepper::Stepper;

use crate::backend::sealed::Driver;
use crate::backend::{Backend, Call, Command, Fault, Fleeting, HostBytes, Limits, Spares, Submitter, Waiter};
use crate::error::Error;
use crate::failures::Reports;
use crate::graph::commands::Commands;
use crate::graph::flow::Dag;
use crate::kernel::program::Sources;
use crate::order::Mark;
use crate::poison::Poison;
use crate::profile::Clock;
use crate::stream_id::StreamId;
use crew::Crew;
use graph::HostExec;
use memory::HostMemory;
use pinned::HostPinned;
use queue::{HostQueue, Task};

/// The host backend: no GPU needed.
#[derive(Debug)]
pub struct Host {
    machine: Arc<Machine>,
}

/// What the queues of one host device share.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) options: HostOptions,
    pub(crate) faults: Faults,
    pub(crate) poison: Arc<Poison>,
    pub(crate) crew: Crew,
    /// Made at the first launch in chunks; `None` if the system has no threads for it.
    chunk_pool: OnceLock<Option<rayon::ThreadPool>>,
    pub(crate) queues: Mutex<Vec<std::sync::Weak<queue::Shared>>>,
    /// Streams that record: on their behalf, nothing may run or be waited for.
    recording: Mutex<Vec<StreamId>>,
    /// How many holds there are; while there are any, waits on a stepped device do not run its work.
    pub(crate) held: AtomicUsize,
}

/// Options of a host device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostOptions {
    execution: Execution,
    in_flight: usize,
    threads: usize,
    max_buffer: usize,
    unwritten_reads: UnwrittenReads,
    faults: Option<Faults>,
}

/// Who runs queued work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Execution {
    Workers,
    Stepped,
}

/// What a read of scratch memory that nothing has written yet does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UnwrittenReads {
    /// It sees unspecified bytes, as on a GPU.
    #[default]
    Allow,
    /// It is [`Error::ReadBeforeWrite`], and so is what is computed from it.
    Refuse,
}

impl Default for HostOptions {
    fn default() -> Self {
        HostOptions {
            execution: Execution::Workers,
            in_flight: 1024,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            max_buffer: isize::MAX as usize / 2,
            unwritten_reads: UnwrittenReads::default(),
            faults: None,
        }
    }
}

impl HostOptions {
    /// The usual options: a worker for each slot, as many threads for a graph as the machine has cores.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many operations a slot holds before the next one waits for room. At least 1.
    pub fn in_flight(mut self, operations: usize) -> Self {
        self.in_flight = operations.max(1);
        self
    }

    /// How many threads run the independent nodes of one graph, the slot's own included; and, in a pool of the
    /// device's own, the chunks of kernels. At least 1, which is the slot's own and nothing else.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// The most bytes that one buffer may have.
    pub fn max_buffer(mut self, bytes: usize) -> Self {
        self.max_buffer = bytes.min(isize::MAX as usize / 2);
        self
    }

    /// What a read of scratch memory that nothing has written yet does.
    pub fn unwritten_reads(mut self, unwritten: UnwrittenReads) -> Self {
        self.unwritten_reads = unwritten;
        self
    }

    /// The faults that the device meets from the start, which can make its opening fail. Devices that are given the
    /// same ones share them, and their counts.
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = Some(faults);
        self
    }

    pub(crate) fn stepped(mut self) -> Self {
        self.execution = Execution::Stepped;
        self
    }
}

impl Machine {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            max_buffer: self.options.max_buffer,
            // Those of current GPUs, so that a launch which works here works there.
            max_blocks: [i32::MAX as u64, 65_535, 65_535],
            max_block: [1024, 1024, 64],
            max_threads_per_block: 1024,
            alignment: memory::ALIGNMENT,
        }
    }

    pub(crate) fn is_stepped(&self) -> bool {
        self.options.execution == Execution::Stepped
    }

    /// The threads that run chunks; without any, they run one after the other on the calling thread.
    ///
    /// A pool of the device's own: tasks of the user's that wait for a stream may be all that runs on rayon's global
    /// one. A stepped device has none: its steps run on threads that may be workers of some pool of the user's, and
    /// such a worker takes other tasks on while it waits for another pool, which would then run inside the kernel.
    pub(crate) fn chunk_pool(&self) -> Option<&rayon::ThreadPool> {
        if self.options.threads < 2 || self.is_stepped() {
            return None;
        }
        let pool = || {
            let named = rayon::ThreadPoolBuilder::new().thread_name(|_| "dacapo-chunks".to_owned());
            named.num_threads(self.options.threads).build().ok()
        };
        self.chunk_pool.get_or_init(pool).as_ref()
    }

    /// Counts a call of the driver, and refuses it if it is to fail.
    fn call(&self, call: Call) -> Result<(), Fault> {
        self.faults.meet(call)
    }

    /// What a driver would punish: work or a wait on behalf of a stream whose window is open.
    fn refuse_in_window(&self, call: Call, stream: StreamId) -> Result<(), Fault> {
        if cfg!(debug_assertions) && self.recording.lock().contains(&stream) {
            let message = "on behalf of a stream that is recording";
            return Err(Fault::new(call, crate::backend::fault::Severity::Sticky, message));
        }
        Ok(())
    }
}

impl Host {
    pub(crate) fn faults(&self) -> &Faults {
        &self.machine.faults
    }

    pub(crate) fn options(&self) -> &HostOptions {
        &self.machine.options
    }

    pub(crate) fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }
}

impl Backend for Host {}

#[diagnostic::do_not_recommend]
impl Driver for Host {
    const NAME: &'static str = "host";
    const SOURCE: &'static str = "host";
    type Options = HostOptions;
    type Queue = HostQueue;
    type Memory = HostMemory;
    type Code = Arc<HostCode>;
    type Section = Infallible;
    type Exec = HostExec;

    fn open(options: &HostOptions, poison: &Arc<Poison>) -> Result<Self, Fault> {
        let machine = Machine {
            options: options.clone(),
            faults: options.faults.clone().unwrap_or_default(),
            poison: poison.clone(),
            crew: Crew::new(options.threads),
            chunk_pool: OnceLock::new(),
            queues: Mutex::default(),
            recording: Mutex::default(),
            held: AtomicUsize::new(0),
        };
        Ok(Host { machine: Arc::new(machine) })
    }

    fn limits(&self) -> Limits {
        self.machine.limits()
    }

    fn queue(&self, index: u32, spares: Arc<Spares<Self>>) -> Result<HostQueue, Fault> {
        self.machine.call(Call::Open)?;
        HostQueue::start(&self.machine, index, spares)
    }

    fn allocate(&self, bytes: usize) -> Result<HostMemory, Fault> {
        self.machine.call(Call::Allocate)?;
        HostMemory::zeroed(bytes)
    }

    fn free(&self, memory: &HostMemory) -> Result<(), Fault> {
        self.machine.call(Call::Free)?;
        memory.retire();
        Ok(())
    }

    fn clock(&self) -> Clock {
        Clock::Host
    }

    fn address(memory: &HostMemory, offset: usize) -> Option<u64> {
        memory.address(offset, 0).map(|address| address.as_ptr().expose_provenance() as u64)
    }

    fn pin(&self, bytes: usize) -> Result<Box<dyn HostBytes>, Fault> {
        self.machine.call(Call::Pin)?;
        Ok(Box::new(HostPinned::zeroed(bytes)?))
    }

    fn refuses_unwritten_reads(&self) -> bool {
        self.machine.options.unwritten_reads == UnwrittenReads::Refuse
    }

    fn runs_in_chunks(code: &Arc<HostCode>) -> bool {
        code.is_chunked()
    }

    fn load(&self, sources: &Sources) -> Result<Option<Arc<HostCode>>, Fault> {
        self.machine.call(Call::Load)?;
        Ok(sources.host.clone())
    }

    fn begin(&self, stream: StreamId) -> Result<(), Fault> {
        self.machine.call(Call::Begin)?;
        self.machine.recording.lock().push(stream);
        Ok(())
    }

    fn end(&self, stream: StreamId) -> Result<(), Fault> {
        // Whatever the driver says of it, the window is over.
        self.abandon(stream);
        self.machine.call(Call::End)
    }

    fn abandon(&self, stream: StreamId) {
        self.machine.recording.lock().retain(|recording| *recording != stream);
    }

    fn throttle(&self, queue: &HostQueue) {
        queue.throttle();
    }

    fn wait_for_room(&self, queue: &HostQueue, seq: u64) -> bool {
        queue.shared().wait_for_room(seq)
    }

    fn wait_for(&self, queue: &HostQueue, on: &HostQueue, seq: u64) -> Result<(), Fault> {
        self.machine.call(Call::Wait)?;
        queue.push(Task::Wait { on: on.shared().clone(), seq });
        Ok(())
    }

    fn order_failure(&self, queue: &HostQueue, on: &HostQueue, seq: u64) {
        queue.push(Task::Wait { on: on.shared().clone(), seq });
    }

    fn submit(
        &self,
        queue: &HostQueue,
        seq: u64,
        by: &Submitter,
        command: &mut Command<Self>,
    ) -> Result<(), Fault> {
        let call = command.job.call();
        self.machine.call(call)?;
        self.machine.refuse_in_window(call, by.stream)?;
        let command = std::mem::replace(command, Command::taken());
        queue.push(Task::Run { seq, by: by.clone(), command });
        Ok(())
    }

    fn submit_failure(&self, queue: &HostQueue, seq: u64, command: &mut Command<Self>, cause: Arc<Error>) {
        let command = std::mem::replace(command, Command::taken());
        queue.push(Task::Fail { seq, command, cause });
    }

    fn seal(
        &self,
        commands: &Arc<Commands<Self>>,
        dag: &Dag,
        fleeting: Vec<Fleeting<Self>>,
    ) -> Result<HostExec, Fault> {
        self.machine.call(Call::Seal)?;
        Ok(HostExec::new(commands.clone(), dag, fleeting))
    }

    fn replay(
        &self,
        queue: &HostQueue,
        seq: u64,
        by: &Submitter,
        exec: &Arc<HostExec>,
        reports: &Arc<Reports>,
    ) -> Result<(), Fault> {
        self.machine.call(Call::Replay)?;
        self.machine.refuse_in_window(Call::Replay, by.stream)?;
        let mark = Mark { slot: queue.shared().index(), seq };
        queue.push(Task::Replay { mark, by: by.clone(), exec: exec.clone(), reports: reports.clone() });
        Ok(())
    }

    fn replay_failure(&self, queue: &HostQueue, seq: u64, exec: &Arc<HostExec>, cause: Arc<Error>) {
        queue.push(Task::FailReplay { seq, exec: exec.clone(), cause });
    }

    fn completed(&self, queue: &HostQueue) -> u64 {
        queue.shared().completed()
    }

    fn block(
        &self,
        queue: &HostQueue,
        seq: u64,
        waiter: Waiter,
        deadline: Option<Instant>,
    ) -> Result<bool, Fault> {
        if waiter != Waiter::Reaper {
            self.machine.call(Call::Synchronize)?;
        }
        if let Waiter::Stream(stream) = waiter {
            self.machine.refuse_in_window(Call::Synchronize, stream)?;
        }
        Ok(queue.shared().block(seq, waiter, deadline))
    }
}
