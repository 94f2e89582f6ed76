//! The news that a submission is done, in the order of submissions.

#![forbid(unsafe_code)]

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use crate::backend::command::Stamp;
use crate::backend::wgpu::Machine;
use crate::backend::wgpu::landing::Arrival;
use crate::backend::wgpu::queue::Shared;

/// Tells that all up to an operation is done; by its drop, since wgpu may drop a callback that it never calls.
///
/// wgpu calls back on whichever thread polls, and two threads may poll at once, so that the news of one submission come in any
/// order. Each of them holds the notice, which so comes last; and it holds the notice of the next submission.
pub(crate) struct Notice {
    pub(crate) shared: Arc<Shared>,
    pub(crate) machine: Weak<Machine>,
    pub(crate) stamps: Vec<Arc<Stamp>>,
    pub(crate) upto: u64,
    pub(crate) next: Mutex<Option<Arc<Notice>>>,
}

impl Drop for Notice {
    fn drop(&mut self) {
        if let Some(machine) = self.machine.upgrade() {
            let now = Instant::now();
            self.stamps.drain(..).for_each(|at| machine.arrivals.push(Arrival::Time(at, now)));
            machine.arrivals.push(Arrival::Done(self.shared.clone(), self.upto));
        }
        // Release: who sees that nothing is in flight, or one less, finds the news.
        self.shared.in_flight.fetch_sub(1, Ordering::Release);
        // In a loop, since there may be more of them than a stack has room for.
        let mut next = self.next.get_mut().take();
        while let Some(mut notice) = next.and_then(Arc::into_inner) {
            next = notice.next.get_mut().take();
        }
    }
}
