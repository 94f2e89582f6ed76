//! Deciding when queued work runs.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use static_assertions::assert_impl_all;

use crate::backend::host::queue::{Shared, Stepped};
use crate::backend::host::{Host, Machine};
use crate::callback;
use crate::stream_id::StreamId;

/// Decides when the queued work of a stepped device runs; made by [`Device::stepped`](crate::Device::stepped).
///
/// A blocking wait on such a device runs what it needs, and nothing else; while the device is [held](Stepper::hold),
/// it only waits. More transfers in flight than [`pending_limit`](crate::DeviceOptions::pending_limit) allows are a wait
/// too, but on a held device, where they go on. Operations of a graph run in the order of recording, and the chunks of a kernel one after the other.
#[derive(Clone, Debug)]
pub struct Stepper {
    machine: Arc<Machine>,
}

/// While it lives, waits on the device do not run its work.
#[derive(Debug)]
#[must_use = "dropping it lets waits run work again"]
pub struct Hold {
    machine: Arc<Machine>,
}

impl Stepper {
    pub(crate) fn new(host: &Host) -> Self {
        Stepper { machine: host.machine().clone() }
    }

    /// Runs the next operation of the slot that `stream` folds onto. `false` if there is none, or if it waits for
    /// another slot, and inside a kernel or host callback.
    pub fn step(&self, stream: StreamId) -> bool {
        self.of(stream).is_some_and(|queue| stepped(&queue))
    }

    /// Runs operations of that slot until none is left or the next one waits for another slot; returns how many.
    pub fn run(&self, stream: StreamId) -> usize {
        let Some(queue) = self.of(stream) else { return 0 };
        std::iter::repeat_with(|| stepped(&queue)).take_while(|ran| *ran).count()
    }

    /// Runs everything that is queued on every slot; returns how many operations that were.
    pub fn run_all(&self) -> usize {
        let queues = self.queues();
        let mut ran = 0;
        loop {
            let before = ran;
            ran += queues.iter().filter(|queue| stepped(queue)).count();
            if ran == before {
                return ran;
            }
        }
    }

    /// How many operations are queued on that slot.
    pub fn pending(&self, stream: StreamId) -> usize {
        self.of(stream).map_or(0, |queue| queue.pending())
    }

    /// Until the guard is dropped, and every other one, waits only wait: for what a timeout does, or another thread's
    /// step.
    pub fn hold(&self) -> Hold {
        self.machine.held.fetch_add(1, Ordering::Relaxed);
        Hold { machine: self.machine.clone() }
    }

    fn queues(&self) -> Vec<Arc<Shared>> {
        self.machine.queues.lock().iter().filter_map(std::sync::Weak::upgrade).collect()
    }

    fn of(&self, stream: StreamId) -> Option<Arc<Shared>> {
        let queues = self.queues();
        queues.get(stream.slot(queues.len())).cloned()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.machine.held.fetch_sub(1, Ordering::Relaxed);
    }
}

fn stepped(queue: &Shared) -> bool {
    !callback::inside() && queue.step() == Stepped::Ran
}

assert_impl_all!(Stepper: Send, Sync, Clone);
