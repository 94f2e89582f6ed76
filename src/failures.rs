//! Failures that a call could not report, because it had returned by then.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::error::Error;
use crate::order::Mark;

/// The first late failure of one stream since it was last asked.
///
/// One a stream, not one a device or slot: a neighbour's failure is never reported to somebody else.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    any: AtomicBool,
    first: Mutex<Option<Arc<Error>>>,
}

impl Failures {
    pub(crate) fn park(&self, error: &Arc<Error>) {
        self.first.lock().get_or_insert_with(|| error.clone());
        // Release pairs with `take`: who sees the flag finds the error.
        self.any.store(true, Ordering::Release);
    }

    pub(crate) fn take(&self) -> Option<Arc<Error>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut first = self.first.lock();
        self.any.store(false, Ordering::Relaxed);
        first.take()
    }
}

/// What failed in the last replays of one graph, for their tickets.
#[derive(Debug, Default)]
pub struct Reports {
    any: AtomicBool,
    last: Mutex<Vec<(Mark, Arc<Error>)>>,
}

impl Reports {
    /// A ticket that is asked after so many failed replays answers like one of a replay that did not fail.
    const KEPT: usize = 16;

    /// Notes the first failure of a replay.
    pub(crate) fn note(&self, replay: Mark, error: &Arc<Error>) {
        let mut last = self.last.lock();
        if last.iter().any(|(known, _)| *known == replay) {
            return;
        }
        if last.len() == Self::KEPT {
            last.remove(0);
        }
        last.push((replay, error.clone()));
        self.any.store(true, Ordering::Release);
    }

    pub(crate) fn find(&self, replay: Mark) -> Option<Arc<Error>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.last.lock().iter().find(|(known, _)| *known == replay).map(|(_, error)| error.clone())
    }
}
