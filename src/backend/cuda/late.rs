//! Failures of host callbacks, which come after the work that follows them was submitted.
//!
//! Taint is decided when an operation is submitted, but a callback fails when it runs. While one that is to write something
//! is in flight, everything that is submitted is logged, and a failure is carried through the log as if it had been known
//! all along: it spares what was overwritten later, and reaches reads that have not landed yet. Only where something else
//! is known to have failed by then does that stay the cause.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::backend::command::Work;
use crate::backend::cuda::Cuda;
use crate::backend::cuda::graph::CudaExec;
use crate::backend::{CommandRef, Contents, Region};
use crate::error::Error;
use crate::failures::Reports;
use crate::layout::Pitch;
use crate::order::Mark;
use crate::taint::{self, Bytes, Taint};

/// The log of one device. Its lock is never held while the driver is called, which may wait for a callback.
#[derive(Default)]
pub(crate) struct Late {
    /// How many callbacks may still fail bytes.
    pending: AtomicUsize,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    next: u64,
    entries: VecDeque<Entry>,
}

/// An operation that was submitted while a callback could still fail.
struct Entry {
    id: u64,
    what: What,
    verdict: Verdict,
}

enum What {
    Command(Uses),
    Replay { exec: Arc<CudaExec>, mark: Mark, reports: Arc<Reports> },
}

/// What a command does to its regions.
struct Uses {
    regions: SmallVec<[Region<Cuda>; 3]>,
    pitch: Option<Pitch>,
    moves: bool,
}

/// An operation's place in the log, and what becomes of it.
#[derive(Clone)]
pub(crate) struct Admission {
    id: u64,
    pub(crate) verdict: Verdict,
    /// How many callbacks it has that may fail bytes.
    calls: usize,
}

/// The commands of an operation that read, as turned out later, what was never written.
#[derive(Clone, Default)]
pub(crate) struct Verdict(Arc<Mutex<Found>>);

type Found = SmallVec<[(usize, Arc<Error>); 1]>;

impl Verdict {
    /// Why the `index`-th command has nothing to give.
    pub(crate) fn of(&self, index: usize) -> Option<Arc<Error>> {
        let found = self.0.lock();
        found.iter().find(|(of, _)| *of == index).map(|(_, cause)| cause.clone())
    }

    fn add(&self, index: usize, cause: &Arc<Error>) {
        self.0.lock().push((index, cause.clone()));
    }
}

/// Whether a command is a callback that is to write something.
pub(crate) fn may_fail(command: CommandRef<'_, Cuda>) -> bool {
    matches!(command.job.0, Work::HostCall { .. })
        && command.args.regions.iter().any(|region| region.access.writes())
}

impl Late {
    /// Whether operations must be logged.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        // Acquire pairs with `settle`: who finds that a callback is through finds what it tainted. That one was submitted is
        // known to whoever uses its bytes after it, by the core's locks.
        self.pending.load(Ordering::Acquire) > 0
    }

    /// Decides the taint of a command that is about to be enqueued, and logs it.
    ///
    /// # Errors
    /// The cause, if what it reads was never written.
    pub(crate) fn admit(&self, command: CommandRef<'_, Cuda>) -> Result<Admission, Arc<Error>> {
        let uses = Uses::of(command);
        let calls = usize::from(may_fail(command));
        let mut log = self.log.lock();
        if uses.moves {
            if let [Some(from), Some(to)] = uses.ends() {
                to.taint.adopt(&from.taint);
            }
        } else {
            taint::admit(command).map_or(Ok(()), Err)?;
            taint::settle(command);
        }
        Ok(self.note(&mut log, What::Command(uses), calls))
    }

    /// Logs a replay that is about to be enqueued, whose taint `decide` decides.
    pub(crate) fn admit_replay<T>(
        &self,
        exec: &Arc<CudaExec>,
        (mark, reports): (Mark, &Arc<Reports>),
        decide: impl FnOnce() -> T,
    ) -> (T, Admission) {
        let mut log = self.log.lock();
        let decided = decide();
        let calls = exec.failing_calls;
        let what = What::Replay { exec: exec.clone(), mark, reports: reports.clone() };
        (decided, self.note(&mut log, what, calls))
    }

    /// Logs an operation with so many callbacks that may fail, unless none is left to fail it: the last one emptied the log,
    /// so that nobody would let the operation go again.
    fn note(&self, log: &mut Log, what: What, calls: usize) -> Admission {
        let pending = self.pending.fetch_add(calls, Ordering::Relaxed) + calls;
        log.next += 1;
        let (id, verdict) = (log.next, Verdict::default());
        if pending > 0 {
            log.entries.push_back(Entry { id, what, verdict: verdict.clone() });
        }
        Admission { id, verdict, calls }
    }

    /// The driver refused what was admitted: its callbacks never run.
    pub(crate) fn cancel(&self, admission: &Admission) {
        self.settle(self.log.lock(), admission.calls);
    }

    /// A callback that might have failed has not, or was not called.
    pub(crate) fn passed(&self) {
        self.settle(self.log.lock(), 1);
    }

    /// A callback has failed, as the `index`-th command of what was admitted: carries that through what came after.
    pub(crate) fn failed(
        &self,
        admission: &Admission,
        index: usize,
        command: CommandRef<'_, Cuda>,
        cause: &Arc<Error>,
    ) {
        let mut failed = Overlay::default();
        failed.fail(&Uses::of(command), cause);
        let log = self.log.lock();
        for entry in log.entries.iter().filter(|entry| entry.id >= admission.id) {
            let first = if entry.id == admission.id { index + 1 } else { 0 };
            failed.carry(entry, first);
        }
        failed.apply();
        self.settle(log, usize::from(may_fail(command)));
    }

    /// So many callbacks can fail nothing any more; with the last one the log has served.
    fn settle(&self, mut log: parking_lot::MutexGuard<'_, Log>, calls: usize) {
        // Release: see `is_pending`.
        let left = self.pending.fetch_sub(calls, Ordering::Release).saturating_sub(calls);
        let served = if left == 0 { std::mem::take(&mut log.entries) } else { VecDeque::new() };
        drop(log);
        // Under no lock: what they hold may be the last of something large.
        drop(served);
    }
}

impl Uses {
    fn of(command: CommandRef<'_, Cuda>) -> Self {
        let regions = command.args.regions.iter().cloned().collect();
        Uses { regions, pitch: command.job.pitch(), moves: matches!(command.job.0, Work::Move) }
    }

    /// What a move moves from and to.
    fn ends(&self) -> [Option<&Arc<Contents<Cuda>>>; 2] {
        match self.regions.as_slice() {
            [from, to] => [from.contents.as_ref(), to.contents.as_ref()],
            _ => [None, None],
        }
    }
}

/// What a failure has left unwritten, on its way through the log.
#[derive(Default)]
struct Overlay(Vec<(Arc<Contents<Cuda>>, Taint)>);

impl Overlay {
    /// Carries it through one entry, whose commands before `first` came before the failure.
    fn carry(&mut self, entry: &Entry, first: usize) {
        match &entry.what {
            What::Command(uses) if first == 0 => self.step(uses, entry, 0).map_or((), drop),
            What::Command(_) => {}
            What::Replay { exec, mark, reports } => {
                if first == 0 {
                    exec.fleeting.iter().for_each(|fleeting| {
                        self.of(&fleeting.contents).clear(0..fleeting.bytes);
                    });
                }
                for (index, command) in exec.commands.iter().enumerate().skip(first) {
                    if let Some(cause) = self.step(&Uses::of(command), entry, index) {
                        reports.note(*mark, &cause);
                    }
                }
            }
        }
    }

    /// Carries it through one command; returns the cause if that read what was never written.
    fn step(&mut self, uses: &Uses, entry: &Entry, index: usize) -> Option<Arc<Error>> {
        if uses.moves {
            if let [Some(from), Some(to)] = uses.ends() {
                let moved = Taint::default();
                moved.adopt(self.of(from));
                self.of(to).adopt(&moved);
            }
            return None;
        }
        let cause = self.find(uses);
        match &cause {
            Some(cause) => {
                entry.verdict.add(index, cause);
                self.fail(uses, cause);
            }
            None => self.clear(uses),
        }
        cause
    }

    fn find(&mut self, uses: &Uses) -> Option<Arc<Error>> {
        let read = uses.regions.iter().filter(|region| taint::reads(region, uses.pitch));
        read.filter_map(|region| Some((region.contents.as_ref()?, region)))
            .find_map(|(contents, region)| self.of(contents).find(Bytes::new(region.range(), uses.pitch)))
    }

    fn fail(&mut self, uses: &Uses, cause: &Arc<Error>) {
        for region in uses.regions.iter().filter(|region| region.access.writes()) {
            if let Some(contents) = &region.contents {
                self.of(contents).set(Bytes::new(region.range(), uses.pitch), cause.clone());
            }
        }
    }

    fn clear(&mut self, uses: &Uses) {
        for region in uses.regions.iter().filter(|region| !taint::reads(region, uses.pitch)) {
            if let Some(contents) = &region.contents {
                self.of(contents).clear(Bytes::new(region.range(), uses.pitch));
            }
        }
    }

    /// Writes down what is left.
    fn apply(self) {
        self.0.iter().for_each(|(contents, taint)| taint.spread(&contents.taint));
    }

    fn of(&mut self, contents: &Arc<Contents<Cuda>>) -> &Taint {
        let known = self.0.iter().position(|(known, _)| Arc::ptr_eq(known, contents));
        let index = known.unwrap_or_else(|| {
            self.0.push((contents.clone(), Taint::default()));
            self.0.len() - 1
        });
        #[allow(clippy::indexing_slicing, reason = "the position was found, or has just been pushed")]
        &self.0[index].1
    }
}
