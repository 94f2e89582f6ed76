//! The thread of a slot that is behind: it makes the host calls, and works off what waits for them.

#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::command::{Callback, Work};
use crate::backend::exit;
use crate::backend::fault::Severity;
use crate::backend::wgpu::queue::{Shared, Task, When};
use crate::backend::wgpu::{Machine, Wgpu};
use crate::backend::{Call, CommandRef, Fault, Submitter, outcome};
use crate::callback::{OnDevice, panic_message, shielded};
use crate::error::Error;
use crate::taint;

/// Starts the thread of a slot, which ends when the queue is closed.
pub(crate) fn start(machine: &Arc<Machine>, shared: &Arc<Shared>) -> Result<(), Fault> {
    let (machine, shared) = (machine.clone(), shared.clone());
    let thread = std::thread::Builder::new().name(format!("dacapo-wgpu-slot-{}", shared.index));
    let started = thread.spawn(move || {
        while let Some(task) = next(&machine, &shared) {
            perform(&machine, &shared, task);
        }
    });
    started.map(drop).map_err(|error| Fault::new(Call::HostCall, Severity::Call, error.to_string()))
}

/// The next task; `None` once the queue is closed and nothing is left.
fn next(machine: &Machine, shared: &Shared) -> Option<Task> {
    let mut state = shared.state.lock();
    loop {
        if let Some(task) = state.backlog.pop_front() {
            return Some(task);
        }
        if state.behind {
            state.behind = false;
            machine.watch.notice();
            shared.moved.notify_all();
        }
        if state.closed {
            return None;
        }
        shared.moved.wait(&mut state);
    }
}

/// Encodes one task, or makes its host calls, and notes that. Whatever this thread lets go of may be the user's.
fn perform(machine: &Arc<Machine>, shared: &Arc<Shared>, task: Task) {
    let (seq, on_device) = (task.seq(), OnDevice::enter());
    shielded(|| match task {
        Task::Wait { on, seq } => await_encoded(machine, &on, seq),
        Task::Run { by, command, .. } => run(machine, shared, &by, command.view()),
        Task::Fail { command, cause, .. } => outcome::fail(command.view(), &cause),
        Task::Replay { mark, by, exec, reports } => {
            exec.replay_in_parts(machine, shared, mark, &by, &reports)
        }
        Task::FailReplay { exec, cause, .. } => exec.fail(&cause),
    });
    drop(on_device);
    let Some(seq) = seq else { return };
    let _hold = exit::hold();
    let mut state = shared.state.lock();
    shared.encoded(machine, &mut state, seq);
    shared.moved.notify_all();
}

/// What becomes of a task on a device that is lost.
pub(crate) fn give_up(task: Task, lost: &Arc<Error>) {
    let _on_device = OnDevice::enter();
    shielded(|| match task {
        Task::Run { command, .. } => outcome::skip(command.view(), lost),
        Task::Fail { command, cause, .. } => outcome::fail(command.view(), &cause),
        Task::Replay { mark, exec, reports, .. } => {
            exec.fail(lost);
            reports.note(mark, lost);
        }
        Task::FailReplay { exec, cause, .. } => exec.fail(&cause),
        Task::Wait { .. } => {}
    });
}

impl Task {
    /// Its number, if it is an operation of the queue.
    pub(crate) fn seq(&self) -> Option<u64> {
        match self {
            Task::Run { seq, .. } | Task::Fail { seq, .. } | Task::FailReplay { seq, .. } => Some(*seq),
            Task::Replay { mark, .. } => Some(mark.seq),
            Task::Wait { .. } => None,
        }
    }
}

/// Waits until operation `seq` of another queue is submitted.
fn await_encoded(machine: &Arc<Machine>, on: &Arc<Shared>, seq: u64) {
    /// How often the wait looks whether the device was lost.
    const TICK: Duration = Duration::from_millis(10);
    let mut theirs = on.state.lock();
    while theirs.encoded < seq {
        if machine.poison.is_set() {
            return;
        }
        on.moved.wait_for(&mut theirs, TICK);
    }
    drop(theirs);
    // Never taken under a lock: at the end of the process it is not given any more.
    let _hold = exit::hold();
    on.flush(machine, &mut on.state.lock(), When::InTurn);
}

fn run(machine: &Arc<Machine>, shared: &Arc<Shared>, by: &Submitter, command: CommandRef<'_, Wgpu>) {
    if let Some(lost) = machine.poison.error() {
        return outcome::skip(command, &Arc::new(lost));
    }
    let failed = match &command.job.0 {
        Work::HostCall { call } => make_call(machine, shared, command, call).err(),
        _ => {
            let _hold = exit::hold();
            let ran = shared.state.lock().run(machine, command);
            ran.err().map(|fault| machine.poison.absorb(fault))
        }
    };
    if let Some(error) = failed.map(Arc::new) {
        outcome::fail(command, &error);
        by.failures.park(&error);
    }
}

/// Makes a host call when all that the slot has encoded is done, unless what it reads was never written.
pub(crate) fn make_call(
    machine: &Arc<Machine>,
    shared: &Arc<Shared>,
    command: CommandRef<'_, Wgpu>,
    call: &Callback,
) -> Result<(), Error> {
    if let Some(cause) = taint::admit(command) {
        outcome::skip(command, &cause);
        return Ok(());
    }
    let hold = exit::hold();
    shared.drain(machine);
    // The call is the user's, and may be what ends the process.
    drop(hold);
    machine.poison.check()?;
    let run = AssertUnwindSafe(|| call.lock()());
    catch_unwind(run).map_err(|panic| Error::CallbackPanicked { message: panic_message(panic) })?;
    taint::settle_moved(command);
    Ok(())
}
