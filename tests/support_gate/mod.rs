//! Gates, which hold streams up, for tests of every backend.

#![allow(dead_code, reason = "every test binary uses a part of its own")]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use dacapo::{Backend, Enqueue};

/// Holds a stream up until it is opened, or dropped.
///
/// A backend may make the calls of all streams on one thread: a test closes no second gate before it opened the first. And
/// while one is closed, a driver may wait for it to load code: a test does not. One that makes graphs meanwhile runs
/// [`beside_gates`].
///
/// If it stays closed for too long it opens by itself, so that a call that waits for what comes after it cannot hang, and
/// the test fails.
pub struct Gate {
    open: Option<Sender<()>>,
    opened_by_itself: Arc<AtomicBool>,
}

thread_local! {
    /// Whether a gate of the thread's opened by itself.
    static OVERDUE: Cell<bool> = const { Cell::new(false) };
}

impl Gate {
    pub fn close<B: Backend>(stream: &mut impl Enqueue<B>) -> Gate {
        const TOO_LONG: Duration = Duration::from_secs(10);
        let (open, receiver) = channel::<()>();
        let opened_by_itself = Arc::new(AtomicBool::new(false));
        let overdue = opened_by_itself.clone();
        let wait = move || {
            if receiver.recv_timeout(TOO_LONG) == Err(RecvTimeoutError::Timeout) {
                overdue.store(true, Ordering::Relaxed);
            }
        };
        stream.host_call(wait).unwrap();
        Gate { open: Some(open), opened_by_itself }
    }

    /// Opens it; returns whether it was closed until now.
    pub fn open_in_time(mut self) -> bool {
        drop(self.open.take());
        !self.opened_by_itself.load(Ordering::Relaxed)
    }

    #[track_caller]
    pub fn open(self) {
        assert!(
            self.open_in_time(),
            "a call waited for what is behind the gate, which opened by itself in the end"
        );
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if self.opened_by_itself.load(Ordering::Relaxed) {
            OVERDUE.set(true);
        }
    }
}

/// Whether a gate of the thread's opened by itself, in this attempt.
pub fn is_overdue() -> bool {
    OVERDUE.get()
}

/// Runs a test that makes graphs while a gate is closed, up to so many times as long as one of its gates opens by itself.
///
/// Now and then a driver makes room for graphs, and waits for that until the device does nothing: where one does, a test has
/// more than one attempt. A call that waits of itself does so in each.
pub fn beside_gates(attempts: usize, test: impl Fn()) {
    for attempt in 1.. {
        OVERDUE.set(false);
        let outcome = catch_unwind(AssertUnwindSafe(&test));
        if !is_overdue() || attempt == attempts {
            outcome.unwrap_or_else(|panic| resume_unwind(panic));
            return assert!(!is_overdue(), "a gate opened by itself");
        }
    }
}
