//! The queue of a slot, and the worker that runs it.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::backend::fault::Severity;
use crate::backend::host::execute::{self, Outcome};
use crate::backend::host::graph::{HostExec, Replay};
use crate::backend::host::{Host, Machine};
use crate::backend::{Call, Command, Fault, Spares, Submitter, Waiter, outcome};
use crate::callback::{OnDevice, shielded};
use crate::error::Error;
use crate::failures::Reports;
use crate::order::Mark;

/// One thing that a queue does.
pub(crate) enum Task {
    Run { seq: u64, by: Submitter, command: Command<Host> },
    Fail { seq: u64, command: Command<Host>, cause: Arc<Error> },
    Replay { mark: Mark, by: Submitter, exec: Arc<HostExec>, reports: Arc<Reports> },
    FailReplay { seq: u64, exec: Arc<HostExec>, cause: Arc<Error> },
    Wait { on: Arc<Shared>, seq: u64 },
}

/// A slot's queue. Dropping it lets the worker finish what is queued, and waits for nothing.
pub struct HostQueue {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    index: u32,
    machine: Arc<Machine>,
    spares: Arc<Spares<Host>>,
    state: Mutex<State>,
    /// There is work, or the queue is closed.
    work: Condvar,
    /// Something is done.
    done: Condvar,
    completed: AtomicU64,
    /// Held by whoever steps this queue: one task at a time.
    stepping: Mutex<()>,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    closed: bool,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stepped {
    /// One operation ran.
    Ran,
    /// Nothing is queued.
    Empty,
    /// What is next waits for another queue's operation.
    Blocked,
}

impl HostQueue {
    pub(crate) fn start(
        machine: &Arc<Machine>,
        index: u32,
        spares: Arc<Spares<Host>>,
    ) -> Result<Self, Fault> {
        let shared = Arc::new(Shared {
            index,
            machine: machine.clone(),
            spares,
            state: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
            completed: AtomicU64::new(0),
            stepping: Mutex::new(()),
        });
        machine.queues.lock().push(Arc::downgrade(&shared));
        if !machine.is_stepped() {
            let worker = shared.clone();
            let thread = std::thread::Builder::new().name(format!("dacapo-slot-{index}"));
            let spawned = thread.spawn(move || worker.work());
            spawned.map_err(|error| Fault::new(Call::Open, Severity::Call, error.to_string()))?;
        }
        Ok(HostQueue { shared })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn push(&self, task: Task) {
        let mut state = self.shared.state.lock();
        state.tasks.push_back(task);
        drop(state);
        self.shared.work.notify_one();
    }

    /// Waits for room. A stepped queue has room without end, since whoever waits may be the one who steps.
    pub(crate) fn throttle(&self) {
        let shared = &self.shared;
        if shared.machine.is_stepped() {
            return;
        }
        let mut state = shared.state.lock();
        while state.tasks.len() >= shared.machine.options.in_flight {
            shared.done.wait(&mut state);
        }
    }
}

impl Drop for HostQueue {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        // Nobody can step any more. Queues that wait for each other would keep each other alive.
        let orphans =
            if self.shared.machine.is_stepped() { std::mem::take(&mut state.tasks) } else { VecDeque::new() };
        drop(state);
        self.shared.work.notify_one();
        let cause = self.shared.machine.unrun();
        orphans.into_iter().for_each(|task| task.give_up(&cause));
    }
}

impl Shared {
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn completed(&self) -> u64 {
        // Acquire pairs with `complete`: whoever sees an operation done sees what it wrote.
        self.completed.load(Ordering::Acquire)
    }

    pub(crate) fn pending(&self) -> usize {
        self.state.lock().tasks.iter().filter(|task| !matches!(task, Task::Wait { .. })).count()
    }

    fn work(&self) {
        while let Some(task) = self.next() {
            self.perform(task);
        }
    }

    /// The next task; `None` once the queue is closed and empty.
    fn next(&self) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            if let Some(task) = state.tasks.pop_front() {
                return Some(task);
            }
            if state.closed {
                return None;
            }
            self.work.wait(&mut state);
        }
    }

    fn perform(&self, task: Task) {
        let seq = match task {
            Task::Wait { on, seq } => {
                on.block(seq, Waiter::Reaper, None);
                return;
            }
            Task::Run { seq, .. } | Task::Fail { seq, .. } | Task::FailReplay { seq, .. } => seq,
            Task::Replay { mark, .. } => mark.seq,
        };
        // Whatever this thread lets go of for a task may be the user's, so that it ends before the mark says that the
        // task is done; and it may panic, which must not end the thread that others wait for.
        let on_device = OnDevice::enter();
        shielded(|| self.run(task));
        drop(on_device);
        self.complete(seq);
    }

    fn run(&self, task: Task) {
        match task {
            Task::Run { by, command, .. } => {
                if let Outcome::Failed(error) = execute::run(&self.machine, command.view()) {
                    by.failures.park(&error);
                }
                self.spares.give(command.args);
            }
            Task::Fail { command, cause, .. } => {
                outcome::fail(command.view(), &cause);
                self.spares.give(command.args);
            }
            Task::Replay { mark, by, exec, reports } => {
                exec.replay(Replay { machine: self.machine.clone(), mark, by, reports });
            }
            Task::FailReplay { exec, cause, .. } => exec.fail(&cause),
            // A wait runs nothing: see `perform`.
            Task::Wait { .. } => {}
        }
    }

    fn complete(&self, seq: u64) {
        // Under the lock that waiters check under, so that none misses the news; Release: see `completed`.
        let state = self.state.lock();
        self.completed.store(seq, Ordering::Release);
        drop(state);
        self.done.notify_all();
    }

    /// Blocks until the `seq`-th operation is done; a wait on a stepped device runs what it needs.
    pub(crate) fn block(&self, seq: u64, waiter: Waiter, deadline: Option<Instant>) -> bool {
        /// How often a wait looks whether the device was lost, or whether it may step again.
        const TICK: Duration = Duration::from_millis(1);
        while self.completed() < seq {
            if self.machine.poison.is_set() && self.machine.is_stepped() {
                return false;
            }
            let drives = waiter != Waiter::Reaper && self.machine.may_drive();
            if drives && self.drive() {
                continue;
            }
            let tick = Instant::now() + TICK;
            let stepped = self.machine.is_stepped();
            let until =
                if stepped { Some(deadline.map_or(tick, |deadline| deadline.min(tick))) } else { deadline };
            let mut state = self.state.lock();
            if self.completed() >= seq {
                break;
            }
            match until {
                Some(until) => drop(self.done.wait_until(&mut state, until)),
                None => self.done.wait(&mut state),
            }
            drop(state);
            if self.completed() < seq && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
        }
        true
    }

    /// Blocks until the `seq`-th operation is done, for the sake of the room that it takes; a stepped device runs what
    /// that needs. Returns whether it is done: on a lost device, and on one that is held, it may not be.
    pub(crate) fn wait_for_room(&self, seq: u64) -> bool {
        /// How often the wait looks whether the device was lost or held.
        const TICK: Duration = Duration::from_millis(1);
        while self.completed() < seq {
            if self.machine.poison.is_set() || (self.machine.is_stepped() && !self.machine.may_drive()) {
                return false;
            }
            // Only a task that another thread is in the middle of leaves a stepped device nothing to do.
            if !self.machine.is_stepped() || !self.drive() {
                self.block(seq, Waiter::Reaper, Instant::now().checked_add(TICK));
            }
        }
        true
    }

    /// Makes some progress towards the next operation of this queue: runs it, or what it waits for.
    fn drive(&self) -> bool {
        match self.step() {
            Stepped::Ran => true,
            Stepped::Empty => false,
            Stepped::Blocked => self.blocker().is_some_and(|on| on.drive()),
        }
    }

    /// The queue that the next task waits for.
    fn blocker(&self) -> Option<Arc<Shared>> {
        match self.state.lock().tasks.front() {
            Some(Task::Wait { on, seq }) if on.completed() < *seq => Some(on.clone()),
            _ => None,
        }
    }

    /// Runs the next operation of a stepped queue.
    pub(crate) fn step(&self) -> Stepped {
        let _one_at_a_time = self.stepping.lock();
        loop {
            let mut state = self.state.lock();
            match state.tasks.front() {
                None => return Stepped::Empty,
                Some(Task::Wait { on, seq }) if on.completed() < *seq => return Stepped::Blocked,
                Some(_) => {}
            }
            let Some(task) = state.tasks.pop_front() else { return Stepped::Empty };
            drop(state);
            if matches!(task, Task::Wait { .. }) {
                continue;
            }
            self.perform(task);
            return Stepped::Ran;
        }
    }
}

impl Machine {
    /// Why what is queued on a device that is gone never ran.
    fn unrun(&self) -> Arc<Error> {
        let reason = "the device was dropped before it ran";
        let dropped = Error::Unsupported { operation: "a queued operation", reason };
        Arc::new(self.poison.error().unwrap_or(dropped))
    }

    fn may_drive(&self) -> bool {
        // Relaxed: a test that holds the device and then waits does both on one thread, or synchronises itself.
        self.is_stepped() && self.held.load(Ordering::Relaxed) == 0
    }
}

impl Task {
    /// The device is gone before this could run.
    fn give_up(self, unrun: &Arc<Error>) {
        match self {
            Task::Run { command, .. } => outcome::fail(command.view(), unrun),
            Task::Fail { command, cause, .. } => outcome::fail(command.view(), &cause),
            // Whatever these write is gone with the device.
            Task::Replay { .. } | Task::FailReplay { .. } | Task::Wait { .. } => {}
        }
    }
}
