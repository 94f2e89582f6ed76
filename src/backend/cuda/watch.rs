//! The thread that looks how far the device has come, for those who do not wait themselves.
//!
//! Futures become ready, tickets done and memory free though no thread of the user's waits: this one makes every queue
//! write its counter soon after the last operation, and lands what has come. It sleeps while nothing is in flight.

#![allow(unsafe_code, reason = "calls of the CUDA driver")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::backend::cuda::Machine;
use crate::backend::exit;

/// Whether there is something to look for.
#[derive(Default)]
pub(crate) struct Watch {
    busy: AtomicBool,
    /// Whether the thread naps for so long that a read should wake it.
    dozes: AtomicBool,
    ended: Mutex<bool>,
    bell: Condvar,
}

impl Watch {
    /// There is something in flight. On the path of every launch: one load while the thread is awake.
    pub(crate) fn notice(&self) {
        // SeqCst, as in `run`: either this sees the thread's store, or the thread sees what was submitted.
        if !self.busy.load(Ordering::SeqCst) && !self.busy.swap(true, Ordering::SeqCst) {
            drop(self.ended.lock());
            self.bell.notify_one();
        }
    }

    /// There is something in flight that somebody may wait for without blocking.
    pub(crate) fn hurry(&self) {
        // Relaxed: at worst a nap is woken for nothing, or runs to its end.
        if self.dozes.swap(false, Ordering::Relaxed) {
            drop(self.ended.lock());
            self.bell.notify_one();
        }
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        *self.ended.lock() = true;
        self.bell.notify_one();
    }

    /// Blocks until something is in flight; `false` when there is no more to come.
    fn wait(&self) -> bool {
        let mut ended = self.ended.lock();
        while !*ended && !self.busy.load(Ordering::SeqCst) {
            self.bell.wait(&mut ended);
        }
        !*ended
    }

    /// Lets some time pass; returns whether somebody was in a hurry.
    fn nap(&self, time: Duration) -> bool {
        let mut ended = self.ended.lock();
        let dozes = time > SHORT;
        self.dozes.store(dozes, Ordering::Relaxed);
        if !*ended {
            self.bell.wait_for(&mut ended, time);
        }
        dozes && !self.dozes.swap(false, Ordering::Relaxed)
    }
}

/// How long after an operation the first look is taken: a call that waits for it has landed it by then.
const SOON: Duration = Duration::from_micros(50);
/// The longest nap that nobody needs to be woken from.
const SHORT: Duration = Duration::from_micros(200);
const LATE: Duration = Duration::from_millis(1);
/// After so many looks at nothing, which take about a second, the thread sleeps: to wake it costs an operation a system call,
/// which is not to come back with every step of a loop that waits for something else in between.
const QUIET: u32 = 1000;

/// Watches until there is nothing left to watch.
pub(crate) fn run(machine: &Arc<Machine>) {
    let watch = &machine.watch;
    let (mut patience, mut quiet) = (SOON, 0);
    while watch.wait() {
        let hurried = watch.nap(patience);
        patience = if hurried { SOON } else { (patience * 2).min(LATE) };
        quiet = if look(machine) && !hurried { quiet + 1 } else { 0 };
        if quiet < QUIET {
            continue;
        }
        watch.busy.store(false, Ordering::SeqCst);
        // What came before that was seen, or is seen now; what comes after it rings.
        if !look(machine) {
            watch.busy.store(true, Ordering::SeqCst);
        }
        (patience, quiet) = (SOON, 0);
    }
}

/// Looks at every queue; returns whether nothing is in flight, for which the driver is not asked.
fn look(machine: &Machine) -> bool {
    let queues = machine.resident.queues();
    if queues.iter().all(|queue| queue.is_idle()) {
        return true;
    }
    let _hold = exit::hold();
    let lost = machine.poison.error();
    let relaxed = machine.context.relaxed();
    let mut idle = true;
    for queue in queues {
        if let Some(lost) = &lost {
            queue.landings.fail(lost);
            continue;
        }
        if let Err(fault) = &relaxed {
            machine.note(fault);
            continue;
        }
        queue.try_publish(machine);
        if queue.completed() < queue.submitted() {
            idle = false;
            if let Err(fault) = queue.query() {
                machine.note(&fault);
            }
        }
        queue.landings.land(machine, queue.completed());
    }
    idle
}
