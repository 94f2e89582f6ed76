//! Failures carried by the bytes that they left unwritten.
//!
//! Decided in queue order: whoever runs an operation first [`admit`]s it, then [`settle`]s or [`fail`]s it. The map
//! belongs to one tenant of the bytes, so that a late failure never hits the next owner of recycled memory.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::backend::{Backend, Region};
use crate::error::Error;

/// The tainted ranges of one allocation's bytes.
#[derive(Debug, Default)]
pub(crate) struct Taint {
    /// How many ranges are tainted, so that a clean allocation costs one load.
    count: AtomicUsize,
    /// Disjoint, in no order. Few: a failure taints whole arguments.
    ranges: Mutex<Vec<(Range<usize>, Arc<Error>)>>,
}

impl Taint {
    /// Taints the whole of `range` with `cause`, replacing what was there.
    pub(crate) fn set(&self, range: Range<usize>, cause: Arc<Error>) {
        if range.is_empty() {
            return;
        }
        let mut ranges = self.ranges.lock();
        cut(&mut ranges, &range);
        ranges.push((range, cause));
        self.publish(&ranges);
    }

    /// Clears exactly the bytes of `range`.
    pub(crate) fn clear(&self, range: Range<usize>) {
        if self.is_clean() || range.is_empty() {
            return;
        }
        let mut ranges = self.ranges.lock();
        cut(&mut ranges, &range);
        self.publish(&ranges);
    }

    /// The cause of any tainted byte of `range`: the one that starts first.
    pub(crate) fn find(&self, range: &Range<usize>) -> Option<Arc<Error>> {
        if self.is_clean() || range.is_empty() {
            return None;
        }
        let ranges = self.ranges.lock();
        let met = ranges.iter().filter(|(tainted, _)| tainted.start < range.end && range.start < tainted.end);
        met.min_by_key(|(tainted, _)| tainted.start).map(|(_, cause)| cause.clone())
    }

    /// Becomes what `other` is: its bytes have moved here.
    pub(crate) fn adopt(&self, other: &Taint) {
        if self.is_clean() && other.is_clean() {
            return;
        }
        let theirs = other.ranges.lock().clone();
        let mut ranges = self.ranges.lock();
        *ranges = theirs;
        self.publish(&ranges);
    }

    /// Clean again, for another tenant.
    pub(crate) fn reset(&mut self) {
        self.ranges.get_mut().clear();
        *self.count.get_mut() = 0;
    }

    fn is_clean(&self) -> bool {
        // Acquire pairs with `publish`. Operations on one byte are ordered by their queues, and that order carries
        // the count too; a stale zero can only be seen by an operation that no failure precedes.
        self.count.load(Ordering::Acquire) == 0
    }

    fn publish(&self, ranges: &[(Range<usize>, Arc<Error>)]) {
        self.count.store(ranges.len(), Ordering::Release);
    }
}

/// Removes `hole` from every range, splitting those that reach beyond it on both sides.
fn cut(ranges: &mut Vec<(Range<usize>, Arc<Error>)>, hole: &Range<usize>) {
    let mut tails = Vec::new();
    ranges.retain_mut(|(range, cause)| {
        if range.end <= hole.start || hole.end <= range.start {
            return true;
        }
        if hole.end < range.end {
            tails.push((hole.end..range.end, cause.clone()));
        }
        range.end = hole.start;
        range.start < range.end
    });
    ranges.append(&mut tails);
}

/// The root cause that forbids an operation over `regions` to run, if a byte that it reads is tainted.
pub(crate) fn admit<B: Backend>(regions: &[Region<B>]) -> Option<Arc<Error>> {
    regions.iter().filter(|region| region.access.reads()).find_map(|region| {
        let contents = region.contents.as_ref()?;
        contents.taint.find(&region.range())
    })
}

/// After an operation that ran: what it fully wrote is clean.
pub(crate) fn settle<B: Backend>(regions: &[Region<B>]) {
    for region in regions.iter().filter(|region| !region.access.reads()) {
        if let Some(contents) = &region.contents {
            contents.taint.clear(region.range());
        }
    }
}

/// After an operation that failed or was skipped: everything that it was to write carries `cause`.
pub(crate) fn fail<B: Backend>(regions: &[Region<B>], cause: &Arc<Error>) {
    for region in regions.iter().filter(|region| region.access.writes()) {
        if let Some(contents) = &region.contents {
            contents.taint.set(region.range(), cause.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(n: usize) -> Arc<Error> {
        Arc::new(Error::OutOfRange { start: n, end: n, len: n })
    }

    fn start_of(taint: &Taint, range: Range<usize>) -> Option<usize> {
        taint.find(&range).map(|cause| match *cause {
            Error::OutOfRange { start, .. } => start,
            _ => usize::MAX,
        })
    }

    #[test]
    fn a_full_write_clears_exactly_the_bytes_that_it_covers() {
        let taint = Taint::default();
        taint.set(0..100, cause(1));
        taint.clear(40..60);
        assert_eq!(start_of(&taint, 40..60), None);
        assert_eq!(start_of(&taint, 39..60), Some(1));
        assert_eq!(start_of(&taint, 40..61), Some(1));
        taint.clear(0..40);
        taint.clear(60..100);
        assert!(taint.is_clean());
    }

    #[test]
    fn a_later_failure_replaces_an_earlier_one_on_its_own_bytes_only() {
        let taint = Taint::default();
        taint.set(0..10, cause(1));
        taint.set(5..15, cause(2));
        assert_eq!(start_of(&taint, 0..5), Some(1));
        assert_eq!(start_of(&taint, 5..6), Some(2));
        assert_eq!(start_of(&taint, 4..6), Some(1));
        assert_eq!(start_of(&taint, 15..20), None);
    }
}
