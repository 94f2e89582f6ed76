//! One operation on its way: executed at once, or recorded.

#![forbid(unsafe_code)]

use std::hint::cold_path;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::MutexGuard;

use crate::access::Access;
use crate::backend::command::{Stamp, Work};
use crate::backend::{Backend, Command, Contents, Job, Submitter};
use crate::capture::recorder::{Kind, Recorder};
use crate::capture::status::WindowId;
use crate::capture::window::WindowGuard;
use crate::device::{DeviceCore, Lane, Slot};
use crate::error::{Error, Result};
use crate::kernel::args::{Gather, UseOf, UsesOf};
use crate::memory::allocation::State;
use crate::memory::drops::{self, Kept};
use crate::order::{self, Mark, Marks};
use crate::profile::Stamps;
use crate::stream::StreamCore;
use crate::upload;

/// What is wrong with an operation, if anything is. A pointer, which is handed from step to step: errors are large.
pub(crate) type Problem = Option<Box<Error>>;

/// Where an operation of a stream goes: to the device, or into the open window.
pub struct Route<'a, B: Backend> {
    pub(crate) core: &'a mut StreamCore<B>,
    pub(crate) window: Option<&'a WindowGuard<B>>,
    /// The window that the stream warms up for: it executes, and its tables stay.
    pub(crate) warm_up: Option<&'a WindowGuard<B>>,
}

impl<'a, B: Backend> Route<'a, B> {
    /// The route of a stream that may have a window, once nothing speaks against any operation.
    #[inline]
    pub(crate) fn open(
        core: &'a mut StreamCore<B>,
        window: Option<&'a WindowGuard<B>>,
        operation: &'static str,
    ) -> Result<Self> {
        crate::callback::refuse(operation)?;
        core.device.poison.check()?;
        core.scalars.clear();
        core.tables.clear();
        let Some(guard) = window else { return Ok(Route { core, window: None, warm_up: None }) };
        guard.check()?;
        let (window, warm_up) = if guard.has_begun() { (Some(guard), None) } else { (None, Some(guard)) };
        Ok(Route { core, window, warm_up })
    }

    /// Collects what the operation uses; returns what is wrong with it.
    #[inline]
    pub(crate) fn gather<'u>(
        &mut self,
        operation: &'static str,
        uses: &mut UsesOf<'u, B>,
        collect: impl FnOnce(&mut Gather<'_, 'u, B>),
    ) -> Problem {
        let StreamCore { device, scalars, tables, .. } = &mut *self.core;
        let mut gather = Gather { device: device.id, operation, uses, scalars, tables, error: None };
        collect(&mut gather);
        gather.error
    }

    /// Executes or records what was gathered. With a `problem`, remembers instead that it failed: the outputs are
    /// tainted, or the recording is doomed.
    ///
    /// Returns the operation's place in the queue, if it executes.
    #[inline]
    pub(crate) fn perform(
        &mut self,
        operation: &'static str,
        uses: &[UseOf<'_, B>],
        job: Job<B>,
        kind: Kind,
        problem: Problem,
    ) -> Result<Option<Mark>> {
        match self.window {
            // Lent, so that what is not recorded, which may be the user's, goes under no lock of the window's.
            Some(guard) => {
                let mut job = job;
                let taken = || std::mem::replace(&mut job, Job(Work::Copy));
                self.record(guard, operation, uses, kind, taken, problem).map(|()| None)
            }
            None => self.execute(operation, uses, job, problem).map(Some),
        }
    }

    /// Remembers a failure that was met before anything was gathered.
    pub(crate) fn fail(&mut self, error: Error) -> Error {
        match self.window {
            Some(guard) => {
                let _ = guard.record(|recorder| {
                    recorder.fail(error.clone());
                    Ok(())
                });
                error
            }
            None => error,
        }
    }

    /// Records an operation, whose job is made where it is kept.
    #[inline]
    pub(crate) fn record(
        &self,
        guard: &WindowGuard<B>,
        operation: &'static str,
        uses: &[UseOf<'_, B>],
        kind: Kind,
        job: impl FnOnce() -> Job<B>,
        problem: Problem,
    ) -> Result<()> {
        let core = &*self.core;
        guard.record(|recorder| {
            recorder.refuse_if_doomed(operation)?;
            if let Some(error) = problem {
                return Err(recorder.fail(*error));
            }
            let of = (guard.window.id, operation);
            if core.tables.is_empty() {
                return recorder.append(of, (uses, &core.scalars), kind, job);
            }
            append_with_tables(core, recorder, of, uses, kind, job())
        })
    }

    #[inline]
    fn execute(
        &mut self,
        operation: &'static str,
        uses: &[UseOf<'_, B>],
        job: Job<B>,
        problem: Problem,
    ) -> Result<Mark> {
        let core = &mut *self.core;
        make_room(&core.device, core.device.slot(core.slot), core.slot);
        if core.tables.is_empty() || problem.is_some() {
            return execute(core, operation, uses, job, problem);
        }
        cold_path();
        match upload::bring(core, self.warm_up) {
            Ok(tables) => execute(core, operation, &tables.among(uses), job, None),
            Err(error) => execute(core, operation, uses, job, Some(Box::new(error))),
        }
    }
}

/// Appends an operation that has tables.
#[cold]
fn append_with_tables<B: Backend>(
    core: &StreamCore<B>,
    recorder: &mut Recorder<B>,
    of: (WindowId, &'static str),
    uses: &[UseOf<'_, B>],
    kind: Kind,
    job: Job<B>,
) -> Result<()> {
    let tables = upload::record(core, recorder);
    recorder.append(of, (&tables.among(uses), &core.scalars), kind, || job)
}

/// Waits until the queue of `slot` has room for another operation.
#[inline]
pub(crate) fn make_room<B: Backend>(device: &DeviceCore<B>, of: &Slot<B>, slot: u32) {
    device.backend.throttle(&of.queue);
    drops::make_room(device, of, slot);
}

/// Enqueues an operation whose tables have memory, where there is room for it.
pub(crate) fn execute<B: Backend>(
    core: &mut StreamCore<B>,
    operation: &'static str,
    uses: &[UseOf<'_, B>],
    job: Job<B>,
    problem: Problem,
) -> Result<Mark> {
    let StreamCore { device, slot, scalars, by, last, command, .. } = core;
    if command.args.regions.capacity() == 0 {
        cold_path();
        // Not before there is room in the queue: a slot needs no more of them than operations.
        command.args = device.slot(*slot).spares.take();
    }
    command.job = job;
    command.args.scalars.extend_from_slice(scalars);
    Sender { device, slot: *slot, by, last }.send(operation, command, uses, problem)
}

/// Puts operations on a stream's queue.
pub(crate) struct Sender<'c, B: Backend> {
    pub(crate) device: &'c Arc<DeviceCore<B>>,
    pub(crate) slot: u32,
    pub(crate) by: &'c Submitter,
    pub(crate) last: &'c mut u64,
}

impl<B: Backend> Sender<'_, B> {
    /// Enqueues one operation, which has all but its regions, or, with a `problem`, that it failed. Never waits for room in
    /// the queue. What is left of `command` has nothing in it, and the room of its arguments, if the backend keeps none.
    #[inline]
    pub(crate) fn send(
        self,
        operation: &'static str,
        command: &mut Command<B>,
        uses: &[UseOf<'_, B>],
        problem: Problem,
    ) -> Result<Mark> {
        let Sender { device, slot, by, last } = self;
        let mut lane = enter(device, device.slot(slot), slot, uses);
        if let Err(lost) = device.poison.check() {
            cold_path();
            drop(lane);
            command.clear();
            return Err(lost);
        }
        let mark = Mark { slot, seq: lane.seq + 1 };
        let mut step = Step { device, mark, waits: Marks::default(), problem };
        step.resolve(operation, uses, |used, contents| command.args.push(used, contents));
        step.wait();
        let kept = Kept::of(&command.job);
        let failed = step.submit(by, command);
        (lane.seq, *last) = (mark.seq, mark.seq);
        // What failed to enqueue is nothing that the device touches.
        let kept = kept.filter(|_| failed.is_none());
        let passed = kept.map(|kept| drops::keep(device, slot, &mut lane, mark.seq, kept));
        drop(lane);
        // Not before: a callback that is not to be called is the user's, and what it owns may be a graph, whose drop takes locks.
        command.clear();
        if let Some(passed) = passed {
            passed.let_go(&device.staging);
        }
        match failed {
            Some(error) => {
                cold_path();
                Err(*error)
            }
            None => Ok(mark),
        }
    }
}

/// Locks `slot` once it owns all that `uses` look at.
#[inline]
pub(crate) fn enter<'d, B: Backend>(
    device: &'d DeviceCore<B>,
    of: &'d Slot<B>,
    slot: u32,
    uses: &[UseOf<'_, B>],
) -> MutexGuard<'d, Lane> {
    let lane = of.lane();
    if uses.iter().all(|used| used.alloc.owner.is(slot) && used.alloc.is_free_of_graphs()) {
        return lane;
    }
    drop(lane);
    enter_others(device, slot, uses)
}

/// [`enter`], where the slot does not own all of them yet, or a graph may be among them.
#[cold]
fn enter_others<'d, B: Backend>(
    device: &'d DeviceCore<B>,
    slot: u32,
    uses: &[UseOf<'_, B>],
) -> MutexGuard<'d, Lane> {
    order::enter(device, slot, |visit| {
        uses.iter().for_each(|used| used.alloc.visit(&[(used.range(), used.access)], visit));
    })
}

/// What is found out about one operation under its slot's lock.
pub(crate) struct Step<'d, B: Backend> {
    pub(crate) device: &'d DeviceCore<B>,
    pub(crate) mark: Mark,
    pub(crate) waits: Marks,
    pub(crate) problem: Problem,
}

impl<B: Backend> Step<'_, B> {
    /// Resolves every use to memory, which `place` is told (none for a use of no bytes), collects what it must wait for, and
    /// writes it down, in the allocation and in the graphs that it conflicts with.
    ///
    /// Written down before it is enqueued: nobody looks before the slot's lock is free. An operation that uses bytes twice
    /// then meets its own mark, which is one of its own slot.
    #[inline]
    pub(crate) fn resolve(
        &mut self,
        operation: &'static str,
        uses: &[UseOf<'_, B>],
        mut place: impl FnMut(&UseOf<'_, B>, Option<&Arc<Contents<B>>>),
    ) {
        let Step { device, mark, waits, .. } = self;
        for used in uses {
            let mut state = used.alloc.state.lock();
            let (range, access) = (used.range(), used.access);
            match state.resolve(operation) {
                // Of a token nobody knows but the order of things: backends see the parameters' regions in their order.
                Ok(_) if used.alloc.is_token => {}
                Ok(contents) => place(used, contents.filter(|_| !range.is_empty())),
                Err(error) => note(&mut self.problem, error),
            }
            // What uses no byte waits for nobody.
            if range.is_empty() {
                continue;
            }
            if !used.alloc.is_free_of_graphs() {
                meet_graphs(&state, &range, access, *mark, waits);
            }
            state.uses.meet(range, access, *mark, waits, |mark| device.passed(mark));
        }
    }

    /// Enqueues the waits.
    #[inline]
    pub(crate) fn wait(&mut self) {
        if !self.waits.is_empty() {
            self.wait_for_others();
        }
    }

    #[inline(never)]
    fn wait_for_others(&mut self) {
        if let Err(error) = wait_for(self.device, self.mark.slot, &self.waits) {
            self.problem.get_or_insert_with(|| Box::new(error));
        }
    }

    /// Enqueues the command, or that it failed; returns the failure. What is left of the command is to be let go of.
    #[inline]
    pub(crate) fn submit(self, by: &Submitter, command: &mut Command<B>) -> Problem {
        let Step { device, mark: Mark { slot, seq }, problem, .. } = self;
        let queue = &device.slot(slot).queue;
        let problem = problem.or_else(|| {
            let fault = device.backend.submit(queue, seq, by, command).err()?;
            cold_path();
            Some(Box::new(device.poison.absorb(fault)))
        });
        if let Some(error) = &problem {
            cold_path();
            device.backend.submit_failure(queue, seq, command, root_of(error));
        }
        problem
    }
}

/// Writes down a use in the graphs that it conflicts with, and adds to `waits` what it must wait for there.
#[inline(never)]
fn meet_graphs<B: Backend>(
    state: &State<B>,
    range: &Range<usize>,
    access: Access,
    mark: Mark,
    waits: &mut Marks,
) {
    for graph in state.conflicting_with(&[(range.clone(), access)]) {
        graph.use_member(waits);
        graph.note(mark);
    }
}

#[cold]
fn note(problem: &mut Problem, error: Error) {
    problem.get_or_insert_with(|| Box::new(error));
}

/// Makes `slot` wait for every mark of another slot that has not passed.
///
/// On an error what follows must be a failure. That one is ordered all the same: it taints bytes that operations
/// before it may still use, and those after it must find the taint.
pub(crate) fn wait_for<B: Backend>(device: &DeviceCore<B>, slot: u32, waits: &Marks) -> Result<()> {
    let queue = &device.slot(slot).queue;
    let mut outcome = Ok(());
    for mark in waits.iter().filter(|mark| mark.slot != slot && !device.passed(*mark)) {
        let on = &device.slot(mark.slot).queue;
        if outcome.is_ok() {
            let waited = device.backend.wait_for(queue, on, mark.seq);
            outcome = waited.map_err(|fault| device.poison.absorb(fault));
        }
        if outcome.is_err() {
            device.backend.order_failure(queue, on, mark.seq);
        }
    }
    outcome
}

/// The cause that outputs carry: the root, where the error is itself about a cause.
pub(crate) fn root_of(error: &Error) -> Arc<Error> {
    match error {
        // A recording may never have sealed since it used what another one that never sealed had left.
        Error::Tainted { cause } | Error::NeverSealed { cause } => match &**cause {
            Error::Tainted { .. } | Error::NeverSealed { .. } => root_of(cause),
            _ => cause.clone(),
        },
        other => Arc::new(other.clone()),
    }
}

/// Enqueues a replay on `slot` as one step: the graph, its links, and nothing for its members. With `stamps`, the queue
/// notes the time right before it, when nothing is left to wait for, and right after it.
pub(crate) fn replay<B: Backend>(
    core: &mut StreamCore<B>,
    graph: &crate::graph::GraphCore<B>,
    stamps: Option<&Stamps>,
) -> Result<Mark> {
    let StreamCore { device, slot, by, last, .. } = core;
    let slot = *slot;
    let queue = &device.slot(slot).queue;
    make_room(device, device.slot(slot), slot);
    let order = &graph.order;
    let mut lane = order::enter(&**device, slot, |visit| order.visit(visit));
    device.poison.check()?;
    let first = Mark { slot, seq: lane.seq + 1 };
    let mark = Mark { slot, seq: first.seq + u64::from(stamps.is_some()) };
    let mut waits = Marks::default();
    order.replay(mark, &mut waits);
    let mut ordered = if waits.is_empty() { Ok(()) } else { wait_for(device, slot, &waits) };
    if let Some(stamps) = stamps {
        ordered = stamp(device, first, by, &stamps.start, ordered);
    }
    let outcome = ordered.and_then(|()| {
        let enqueued = device.backend.replay(queue, mark.seq, by, &graph.exec, &graph.reports);
        enqueued.map_err(|fault| device.poison.absorb(fault))
    });
    if let Err(error) = &outcome {
        device.backend.replay_failure(queue, mark.seq, &graph.exec, root_of(error));
    }
    (lane.seq, *last) = (mark.seq, mark.seq);
    if let (Ok(()), Some(stamps)) = (&outcome, stamps) {
        let after = Mark { slot, seq: mark.seq + 1 };
        // The replay is enqueued, whatever becomes of its time: who asks for that is told.
        let _ = stamp(device, after, by, &stamps.stop, Ok(()));
        (lane.seq, *last) = (after.seq, after.seq);
    }
    outcome.map(|()| mark)
}

/// Makes the queue note the time, in the place of `mark`; or, if it is not `ordered`, that it did not.
fn stamp<B: Backend>(
    device: &DeviceCore<B>,
    mark: Mark,
    by: &Submitter,
    at: &Arc<Stamp>,
    ordered: Result<()>,
) -> Result<()> {
    let of = device.slot(mark.slot);
    let mut command = Command { job: Job(Work::Stamp { at: at.clone() }), args: of.spares.take() };
    let outcome = ordered.and_then(|()| {
        let enqueued = device.backend.submit(&of.queue, mark.seq, by, &mut command);
        enqueued.map_err(|fault| device.poison.absorb(fault))
    });
    if let Err(error) = &outcome {
        device.backend.submit_failure(&of.queue, mark.seq, &mut command, root_of(error));
    }
    of.spares.give(command.args);
    outcome
}
