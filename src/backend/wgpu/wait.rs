//! Waits of the host for what a slot has under way.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::backend::Fault;
use crate::backend::wgpu::Machine;
use crate::backend::wgpu::queue::{Shared, When};

/// How long a wait for other threads lasts before it looks whether the device was lost.
const TICK: Duration = Duration::from_millis(1);

/// How long a wait with a deadline sleeps before it looks again, at first; in the end, a [`TICK`].
const NAP: Duration = Duration::from_micros(20);

impl Shared {
    /// Blocks until operation `seq` is done and has landed, the deadline has passed, or the device is lost.
    pub(crate) fn block(
        self: &Arc<Self>,
        machine: &Arc<Machine>,
        seq: u64,
        deadline: Option<Instant>,
    ) -> Result<bool, Fault> {
        let mut nap = NAP;
        loop {
            machine.arrivals.land(machine);
            // First: on a lost device wgpu calls done what never ran.
            if machine.poison.is_set() {
                return Ok(false);
            }
            if self.completed() >= seq {
                return Ok(true);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let patience = left.map_or(TICK, |left| left.min(TICK));
            if patience.is_zero() {
                return Ok(false);
            }
            let mut state = self.state.lock();
            if state.encoded < seq {
                self.moved.wait_for(&mut state, patience);
                continue;
            }
            if state.flushed < seq {
                self.flush(machine, &mut state, When::Now);
                continue;
            }
            drop(state);
            machine.outbox.settle();
            if deadline.is_none() {
                self.poll_for(machine, seq, || self.completed() >= seq);
                continue;
            }
            machine.poll(wgpu::PollType::Poll);
            if self.completed() < seq {
                std::thread::sleep(nap.min(patience));
                nap = TICK.min(2 * nap);
            }
        }
    }

    /// Blocks until all that was submitted is done and has landed, or the device is lost. For the thread of a slot that is
    /// behind, so that nothing comes meanwhile.
    pub(crate) fn drain(self: &Arc<Self>, machine: &Arc<Machine>) {
        let mut state = self.state.lock();
        self.flush(machine, &mut state, When::Now);
        drop(state);
        machine.outbox.settle();
        // Acquire pairs with the news of the last submission.
        let is_done = || self.in_flight.load(Ordering::Acquire) == 0;
        while !is_done() && !machine.poison.is_set() {
            self.poll_for(machine, u64::MAX, is_done);
        }
        machine.arrivals.land(machine);
    }

    /// Lets wgpu wait for the submission of operation `seq`, or for the last one, and lands what came.
    fn poll_for(&self, machine: &Machine, seq: u64, is_done: impl Fn() -> bool) {
        let submissions = self.submissions.lock();
        let index = submissions.iter().find(|(upto, _)| *upto >= seq).or(submissions.back());
        let index = index.map(|(_, index)| index.clone());
        drop(submissions);
        machine.poll(wait_for(index));
        machine.arrivals.land(machine);
        if !is_done() {
            // The news may hang on a later submission, of another slot or of the program.
            machine.poll(wait_for(None));
        }
    }

    /// Whether nothing is left to do.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        !state.behind && self.completed() >= state.encoded
    }
}

/// A wait for a submission, however long it takes: it ends by itself, since no callback is ever inside of one.
///
/// Never with a timeout. When that has passed, wgpu takes note of what is done; and if meanwhile another thread's poll or
/// submission has found the rest done as well, it panics, and the callbacks that it was to call are lost.
fn wait_for(submission_index: Option<wgpu::SubmissionIndex>) -> wgpu::PollType {
    wgpu::PollType::Wait { submission_index, timeout: None }
}
