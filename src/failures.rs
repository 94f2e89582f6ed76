//! Failures that a call could not report, because it had returned by then.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::order::{Mark, Marks};

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
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    failed: Vec<(Mark, Arc<Error>)>,
    /// The newest failed replays that are not in the list any more: of those before them nothing is known.
    forgotten: Marks,
}

impl Reports {
    /// How many failed replays are remembered.
    const KEPT: usize = 16;

    /// Notes the first failure of a replay.
    pub(crate) fn note(&self, replay: Mark, error: &Arc<Error>) {
        let mut last = self.last.lock();
        if last.failed.iter().any(|(known, _)| *known == replay) {
            return;
        }
        if last.failed.len() == Self::KEPT {
            let (oldest, _) = last.failed.remove(0);
            last.forgotten.add(oldest);
        }
        last.failed.push((replay, error.clone()));
        self.any.store(true, Ordering::Release);
    }

    /// How a replay that is done went.
    pub(crate) fn check(&self, operation: &'static str, replay: Mark) -> Result<()> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(());
        }
        let last = self.last.lock();
        if let Some((_, error)) = last.failed.iter().find(|(known, _)| *known == replay) {
            return Err((**error).clone());
        }
        if last.forgotten.iter().any(|newest| newest.slot == replay.slot && replay.seq <= newest.seq) {
            return Err(Error::OutcomeForgotten { operation, kept: Self::KEPT });
        }
        Ok(())
    }
}
