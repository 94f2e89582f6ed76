//! The thread that looks how far the device has come, for those who do not wait themselves.
//!
//! Futures become ready, tickets done and memory free though no thread of the user's waits: this one submits what was encoded
//! a while ago, polls wgpu, and lands what has come. It sleeps while nothing is under way.

#![forbid(unsafe_code)]

use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::backend::wgpu::{Machine, kept, worker};
use crate::backend::{Call, exit};

/// Whether there is something to look for.
#[derive(Default)]
pub(crate) struct Watch {
    busy: AtomicBool,
    ended: Mutex<bool>,
    bell: Condvar,
}

/// How long after an operation the first look is taken: a call that waits for it has landed it by then.
const SOON: Duration = Duration::from_micros(100);
const LATE: Duration = Duration::from_millis(1);
/// After so many looks at nothing the thread sleeps: to wake it costs a launch a system call.
const QUIET: u32 = 16;

impl Watch {
    /// There is something under way. On the path of every launch: one load while the thread is awake.
    pub(crate) fn notice(&self) {
        // SeqCst, as in `run`: either this sees the thread's store, or the thread sees what was encoded.
        if !self.busy.load(Ordering::SeqCst) && !self.busy.swap(true, Ordering::SeqCst) {
            drop(self.ended.lock());
            self.bell.notify_one();
        }
    }

    /// Ends the thread, once nothing is under way.
    pub(crate) fn end(&self) {
        *self.ended.lock() = true;
        self.bell.notify_one();
    }

    fn has_ended(&self) -> bool {
        *self.ended.lock()
    }

    /// Blocks until something is under way, or there is no more to come.
    fn wait(&self) {
        let mut ended = self.ended.lock();
        while !*ended && !self.busy.load(Ordering::SeqCst) {
            self.bell.wait(&mut ended);
        }
    }
}

/// Watches until there is nothing left to watch.
pub(crate) fn run(machine: Arc<Machine>) {
    watch(&machine);
    // The last owner of wgpu's queue waits for all that was submitted when it lets go.
    let _hold = exit::hold();
    kept::let_go(machine);
}

fn watch(machine: &Arc<Machine>) {
    let watch = &machine.watch;
    let (mut patience, mut quiet) = (SOON, 0);
    loop {
        watch.wait();
        std::thread::sleep(patience);
        patience = (patience * 2).min(LATE);
        let idle = look(machine);
        // Who else has a hold on the device must not be the last to let go.
        if watch.has_ended() && (idle || machine.poison.is_set()) && Arc::strong_count(machine) == 1 {
            return;
        }
        quiet = if idle { quiet + 1 } else { 0 };
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

/// Looks at every queue; returns whether nothing is under way.
fn look(machine: &Arc<Machine>) -> bool {
    let _hold = exit::hold();
    let queues = machine.queues.lock().clone();
    let (lost, has_ended) = (machine.poison.error().map(Arc::new), machine.watch.has_ended());
    for queue in &queues {
        let mut state = queue.state.lock();
        if has_ended {
            queue.close(&mut state);
        }
        match &lost {
            None => queue.flush_old(machine, &mut state),
            Some(lost) => {
                let (flights, tasks) = (take(&mut state.flights), take(&mut state.backlog));
                drop(state);
                queue.give_up(lost);
                flights.into_iter().for_each(|flight| flight.fail(lost));
                tasks.into_iter().for_each(|task| worker::give_up(task, lost));
            }
        }
    }
    let departed = take(&mut *machine.departed.lock());
    departed.into_iter().for_each(|memory| machine.forget(memory));
    machine.poll(wgpu::PollType::Poll);
    machine.arrivals.land(machine);
    let idle = queues.iter().all(|queue| queue.is_idle());
    if !idle {
        // Also what waits for the host is told of a loss, though nothing of it was submitted.
        machine.check(Call::Execute);
    }
    idle
}
