//! Host callbacks: user code on a thread of the driver's.

#![allow(unsafe_code, reason = "the driver calls back with a pointer")]

use std::collections::VecDeque;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::backend::command::{Callback, Work};
use crate::backend::cuda::context::check;
use crate::backend::cuda::late::{Admission, Late, may_fail};
use crate::backend::cuda::queue::Shared;
use crate::backend::cuda::sys;
use crate::backend::cuda::{Cuda, Machine};
use crate::backend::{Call, Command, CommandRef, Fault, Submitter};
use crate::callback::{OnDevice, panic_message, shielded};
use crate::error::Error;
use crate::failures::Reports;
use crate::graph::commands::Commands;
use crate::order::Mark;

/// One call, which the driver owns from its submission on.
struct Task {
    command: Command<Cuda>,
    by: Submitter,
    /// Its place among what may fail late; without one it was to write nothing, and follows nothing that may.
    admission: Option<Admission>,
    late: Arc<Late>,
}

/// Enqueues the call of a host command; takes the command if the driver takes the call. The context is bound.
pub(crate) fn submit(
    machine: &Machine,
    queue: &Shared,
    by: &Submitter,
    command: &mut Command<Cuda>,
    admission: Option<&Admission>,
) -> Result<(), Fault> {
    // A callback may wait for its user, who may wait for what comes before it.
    queue.publish()?;
    let taken = std::mem::replace(command, Command::taken());
    let (by, admission, late) = (by.clone(), admission.cloned(), machine.late.clone());
    let task = Box::into_raw(Box::new(Task { command: taken, by, admission, late }));
    // SAFETY: the stream lives as long as `queue`. `run_task` takes the pointer to a `Task` back, which the driver calls once,
    // or never if it refuses or the device is lost.
    let code = unsafe { sys::cuLaunchHostFunc(queue.stream(), Some(run_task), task.cast()) };
    check(Call::HostCall, code).inspect_err(|_| {
        // SAFETY: the pointer came from `into_raw` above, and the driver, which refused it, does not call.
        let task = unsafe { Box::from_raw(task) };
        *command = task.command;
    })
}

/// # Safety
/// `data` came from [`submit`], and this is the only call with it.
unsafe extern "C" fn run_task(data: *mut c_void) {
    let _on_device = OnDevice::enter();
    shielded(|| {
        // SAFETY: by the contract of this function, `data` is a `Task` of `into_raw` that nobody else has.
        let task = unsafe { Box::from_raw(data.cast::<Task>()) };
        task.run();
    });
}

impl Task {
    fn run(self) {
        let Task { command, by, admission, late } = self;
        let Work::HostCall { call } = &command.job.0 else { return };
        let skipped = admission.as_ref().is_some_and(|admission| admission.verdict.of(0).is_some());
        let outcome = if skipped { Ok(()) } else { call_user(call) };
        conclude(&late, admission.as_ref(), 0, command.view(), outcome, |error| by.failures.park(error));
    }
}

/// What follows from a callback: nothing, or that what it was to write, and what was made of that, was never written.
fn conclude(
    late: &Late,
    admission: Option<&Admission>,
    index: usize,
    command: CommandRef<'_, Cuda>,
    outcome: Result<(), Error>,
    tell: impl FnOnce(&Arc<Error>),
) {
    let error = outcome.err().map(Arc::new);
    // First, so that who hears of it finds the taint.
    match (&error, admission) {
        (Some(error), Some(admission)) => late.failed(admission, index, command, error),
        (None, Some(_)) if may_fail(command) => late.passed(),
        // Without a place in the log it writes nothing.
        _ => {}
    }
    if let Some(error) = &error {
        tell(error);
    }
}

/// What a panic in user code comes to.
fn call_user(call: &Callback) -> Result<(), Error> {
    let run = AssertUnwindSafe(|| call.lock()());
    catch_unwind(run).map_err(|panic| Error::CallbackPanicked { message: panic_message(panic) })
}

/// The host node of a graph, which its executable refers to.
pub(crate) struct Node {
    commands: Arc<Commands<Cuda>>,
    index: usize,
    replays: Arc<Replays>,
    /// How often it ran.
    ran: AtomicU64,
}

/// Whose replays are in flight, for the host nodes that find out which one they run in by counting.
#[derive(Default)]
pub(crate) struct Replays(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// How many replays came before the first one that is known.
    before: u64,
    replays: VecDeque<Replay>,
}

/// One replay, for its host nodes.
#[derive(Clone)]
pub(crate) struct Replay {
    pub(crate) queue: Arc<Shared>,
    pub(crate) mark: Mark,
    pub(crate) by: Submitter,
    pub(crate) reports: Arc<Reports>,
    /// The commands that read what was never written.
    pub(crate) skipped: Arc<[usize]>,
    pub(crate) admission: Option<Admission>,
    pub(crate) late: Arc<Late>,
}

impl Replays {
    /// Notes a replay that is about to be enqueued, and forgets those that are done.
    pub(crate) fn add(&self, replay: Replay) {
        let mut known = self.0.lock();
        while known.replays.pop_front_if(|replay| replay.queue.completed() >= replay.mark.seq).is_some() {
            known.before += 1;
        }
        known.replays.push_back(replay);
    }

    /// Forgets the replay that was added last: the driver refused it.
    pub(crate) fn take_back(&self) {
        self.0.lock().replays.pop_back();
    }

    fn of(&self, count: u64) -> Option<Replay> {
        let known = self.0.lock();
        let index = usize::try_from(count.checked_sub(known.before)?).ok()?;
        known.replays.get(index).cloned()
    }
}

impl Node {
    pub(crate) fn new(commands: &Arc<Commands<Cuda>>, index: usize, replays: &Arc<Replays>) -> Arc<Self> {
        let (commands, replays) = (commands.clone(), replays.clone());
        Arc::new(Node { commands, index, replays, ran: AtomicU64::new(0) })
    }

    /// What the driver is to call. The address stays good for as long as a reference lives.
    pub(crate) fn params(self: &Arc<Self>) -> sys::CUDA_HOST_NODE_PARAMS {
        let data = Arc::as_ptr(self).cast_mut().cast::<c_void>();
        sys::CUDA_HOST_NODE_PARAMS { fn_: Some(run_node), userData: data }
    }

    fn run(&self) {
        // Relaxed: replays of one graph run one after the other, as the device's order of them carries.
        let replay = self.replays.of(self.ran.fetch_add(1, Ordering::Relaxed));
        let (Some(command), Some(replay)) = (self.commands.get(self.index), replay) else { return };
        let Work::HostCall { call } = &command.job.0 else { return };
        let late =
            replay.admission.as_ref().is_some_and(|admission| admission.verdict.of(self.index).is_some());
        let skipped = late || replay.skipped.contains(&self.index);
        let outcome = if skipped { Ok(()) } else { call_user(call) };
        conclude(&replay.late, replay.admission.as_ref(), self.index, command, outcome, |error| {
            replay.by.failures.park(error);
            replay.reports.note(replay.mark, error);
        });
    }
}

/// # Safety
/// `data` is the address of a live [`Node`].
unsafe extern "C" fn run_node(data: *mut c_void) {
    let _on_device = OnDevice::enter();
    shielded(|| {
        // SAFETY: by the contract of this function; the executable that calls this is destroyed before its nodes are freed.
        let node = unsafe { &*data.cast::<Node>() };
        node.run();
    });
}
