//! Graphs of the driver, with the edges of the data, and their replays.

#![allow(unsafe_code, reason = "calls of the CUDA driver")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use static_assertions::assert_impl_all;

use crate::backend::command::Work;
use crate::backend::cuda::beside::holding_up;
use crate::backend::cuda::builder::{Builder, Exec};
use crate::backend::cuda::callback::{Node, Replay, Replays};
use crate::backend::cuda::context::check;
use crate::backend::cuda::late::may_fail;
use crate::backend::cuda::pinned::CudaPinned;
use crate::backend::cuda::queue::{CudaQueue, Shared};
use crate::backend::cuda::retire::Retired;
use crate::backend::cuda::sys;
use crate::backend::cuda::{Cuda, Machine};
use crate::backend::{Call, Fault, Fleeting, HostBytes, Submitter, outcome};
use crate::error::Error;
use crate::failures::Reports;
use crate::graph::commands::Commands;
use crate::graph::flow::Dag;
use crate::order::Mark;
use crate::taint;

/// A sealed graph. One replay at a time: the core orders them.
pub struct CudaExec {
    /// `None` for a graph without nodes.
    exec: Option<Exec>,
    pub(crate) commands: Arc<Commands<Cuda>>,
    pub(crate) fleeting: Vec<Fleeting<Cuda>>,
    /// How many of its host nodes are to write something.
    pub(crate) failing_calls: usize,
    /// Nothing that the graph uses was tainted when so many changes of taint had been made; the largest number at first.
    clean_at: AtomicU64,
    /// Whose replays are in flight; none without host nodes, which are who asks.
    replays: Option<Arc<Replays>>,
    /// What the driver refers to.
    calls: Vec<Arc<Node>>,
    /// Whether raw sections call the host.
    sections_call: bool,
    writes: Option<CudaPinned>,
    machine: Arc<Machine>,
}

impl CudaExec {
    pub(crate) fn seal(
        machine: &Arc<Machine>,
        commands: &Arc<Commands<Cuda>>,
        dag: &Dag,
        fleeting: Vec<Fleeting<Cuda>>,
    ) -> Result<Self, Fault> {
        let _relaxed = machine.context.relaxed()?;
        let contained = Contained::of(commands);
        let mut sealed = CudaExec {
            exec: None,
            failing_calls: contained.failing_calls,
            fleeting,
            clean_at: AtomicU64::new(u64::MAX),
            replays: None,
            calls: Vec::new(),
            sections_call: contained.sections_call,
            commands: commands.clone(),
            writes: written(machine, commands, contained.written)?,
            machine: machine.clone(),
        };
        if commands.len() == 0 {
            return Ok(sealed);
        }
        let mut builder = Builder::new(machine, sealed.writes.as_ref())?;
        builder.build(commands, dag, &mut sealed.replays)?;
        sealed.calls = std::mem::take(&mut builder.calls);
        // From here on, dropping `sealed` is what destroys the executable.
        sealed.exec = Some(builder.instantiate()?);
        Ok(sealed)
    }

    /// Enqueues a replay, after deciding what of it reads bytes that were never written.
    pub(crate) fn replay(
        self: &Arc<Self>,
        queue: &CudaQueue,
        seq: u64,
        by: &Submitter,
        reports: &Arc<Reports>,
    ) -> Result<(), Fault> {
        let CudaQueue { shared, machine, .. } = queue;
        let _bound = machine.context.bind()?;
        let _holding = self.calls_the_host().then(holding_up);
        let mark = Mark { slot: shared.index, seq };
        let (skipped, admission) = if machine.late.is_pending() || self.failing_calls > 0 {
            let decide = || self.decide(mark, reports);
            let (skipped, admission) = machine.late.admit_replay(self, (mark, reports), decide);
            (skipped, Some(admission))
        } else {
            (self.decide(mark, reports), None)
        };
        let launched = self.launch(queue, |queue| Replay {
            queue: queue.clone(),
            mark,
            by: by.clone(),
            reports: reports.clone(),
            skipped: skipped.into(),
            admission: admission.clone(),
            late: machine.late.clone(),
        });
        if let (Err(_), Some(admission)) = (&launched, &admission) {
            machine.late.cancel(admission);
        }
        launched?;
        shared.submit(machine, seq);
        Ok(())
    }

    /// Enqueues the nodes. Host nodes are told whose `replay` they run in.
    fn launch(&self, queue: &CudaQueue, replay: impl FnOnce(&Arc<Shared>) -> Replay) -> Result<(), Fault> {
        let Some(exec) = &self.exec else { return Ok(()) };
        let shared = &queue.shared;
        if self.calls_the_host() {
            // A callback may wait for its user, who may wait for what comes before it.
            shared.publish()?;
        }
        if let Some(replays) = &self.replays {
            replays.add(replay(shared));
        }
        // SAFETY: the executable is live, as long as `self`, and the stream as long as its queue. What its nodes use is
        // pinned by the graph, and that nothing else uses it at the same time is the core's order.
        let code = unsafe { sys::cuGraphLaunch(exec.0, shared.stream()) };
        check(Call::Replay, code).inspect_err(|_| self.replays.iter().for_each(|replays| replays.take_back()))
    }

    /// Whether it may hold its stream up for as long as the user likes.
    fn calls_the_host(&self) -> bool {
        self.sections_call || self.replays.is_some()
    }

    /// Remembers, in the place of a replay, that nothing was written.
    pub(crate) fn fail(&self, queue: &CudaQueue, seq: u64, cause: &Arc<Error>) {
        self.commands.iter().for_each(|command| outcome::fail(command, cause));
        match self.machine.context.bind() {
            Ok(_bound) => queue.shared.submit(&self.machine, seq),
            Err(fault) => self.machine.lose(&fault),
        }
    }

    /// Carries taint through the commands in their order; returns those that read some.
    ///
    /// The device runs them all the same, on what the bytes hold; what they write counts as not written. Nothing is looked
    /// at while nothing was tainted since all was clean.
    fn decide(&self, mark: Mark, reports: &Reports) -> Vec<usize> {
        let changes = taint::changes();
        // Relaxed: replays are ordered by the lock of the graph's slot.
        if self.clean_at.load(Ordering::Relaxed) == changes {
            return Vec::new();
        }
        self.fleeting.iter().for_each(|fleeting| fleeting.contents.taint.clear(0..fleeting.bytes));
        let mut skipped = Vec::new();
        for (index, command) in self.commands.iter().enumerate() {
            match taint::admit(command) {
                None => taint::settle(command),
                Some(cause) => {
                    outcome::skip(command, &cause);
                    reports.note(mark, &cause);
                    skipped.push(index);
                }
            }
        }
        let clean = if skipped.is_empty() { changes } else { u64::MAX };
        self.clean_at.store(clean, Ordering::Relaxed);
        skipped
    }
}

impl Drop for CudaExec {
    fn drop(&mut self) {
        if let Some(exec) = self.exec.take() {
            let (calls, writes) = (std::mem::take(&mut self.calls), self.writes.take());
            self.machine.retire(Retired::Exec(exec.0, calls, writes));
        }
    }
}

/// What a graph has of things that are rare.
#[derive(Default)]
struct Contained {
    failing_calls: usize,
    sections_call: bool,
    /// The bytes of recorded writes.
    written: usize,
}

impl Contained {
    fn of(commands: &Commands<Cuda>) -> Self {
        let mut found = Contained::default();
        for (index, job) in commands.jobs().enumerate() {
            match &job.0 {
                Work::HostCall { .. } => {
                    found.failing_calls += usize::from(commands.get(index).is_some_and(may_fail));
                }
                Work::Raw { section } => found.sections_call |= section.calls(),
                Work::Write { bytes, .. } => found.written += bytes.bytes().len(),
                _ => {}
            }
        }
        found
    }
}

/// The `sum` bytes of all recorded writes, one after the other: a graph reads them anew on every replay.
fn written(
    machine: &Arc<Machine>,
    commands: &Commands<Cuda>,
    sum: usize,
) -> Result<Option<CudaPinned>, Fault> {
    if sum == 0 {
        return Ok(None);
    }
    let mut pinned = CudaPinned::zeroed(machine, sum)?;
    let mut rest = pinned.bytes_mut();
    for job in commands.jobs() {
        let Work::Write { bytes, .. } = &job.0 else { continue };
        let Some((place, behind)) = rest.split_at_mut_checked(bytes.bytes().len()) else { break };
        place.copy_from_slice(bytes.bytes());
        rest = behind;
    }
    Ok(Some(pinned))
}

assert_impl_all!(CudaExec: Send, Sync);
