//! Failures carried by the bytes that they left unwritten.
//!
//! Decided in queue order: whoever runs an operation first [`admit`]s it, then [`settle`]s or [`fail`]s it. The map
//! belongs to one tenant of the bytes, so that a late failure never hits the next owner of recycled memory.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

#[cfg(any(feature = "cuda", feature = "wgpu"))]
use crate::backend::command::Work;
use crate::backend::{Backend, CommandRef, Region};
use crate::error::Error;
use crate::layout::Pitch;

/// The tainted ranges of one allocation's bytes.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Taint {
    /// How many ranges are tainted, so that a clean allocation costs one load.
    count: AtomicUsize,
    /// Disjoint, in no order. Few: a failure taints whole arguments.
    ranges: Mutex<Vec<(Range<usize>, Arc<Error>)>>,
}

impl Taint {
    /// Taints all of `bytes` with `cause`, replacing what was there.
    pub(crate) fn set(&self, bytes: impl Into<Bytes>, cause: Arc<Error>) {
        let bytes = bytes.into();
        if bytes.span.is_empty() {
            return;
        }
        note_change();
        let mut ranges = self.ranges.lock();
        cut(&mut ranges, &bytes);
        ranges.extend(bytes.all().map(|range| (range, cause.clone())));
        self.publish(&ranges);
    }

    /// Clears exactly `bytes`.
    pub(crate) fn clear(&self, bytes: impl Into<Bytes>) {
        let bytes = bytes.into();
        if self.is_clean() || bytes.span.is_empty() {
            return;
        }
        let mut ranges = self.ranges.lock();
        cut(&mut ranges, &bytes);
        self.publish(&ranges);
    }

    /// The cause of any tainted one of `bytes`: that of the range that starts first.
    pub(crate) fn find(&self, bytes: impl Into<Bytes>) -> Option<Arc<Error>> {
        let bytes = bytes.into();
        if self.is_clean() || bytes.span.is_empty() {
            return None;
        }
        let ranges = self.ranges.lock();
        let met = ranges.iter().filter(|(tainted, _)| bytes.meeting(tainted).next().is_some());
        met.min_by_key(|(tainted, _)| tainted.start).map(|(_, cause)| cause.clone())
    }

    /// Becomes what `other` is: its bytes have moved here.
    pub(crate) fn adopt(&self, other: &Taint) {
        if self.is_clean() && other.is_clean() {
            return;
        }
        note_change();
        let theirs = other.ranges.lock().clone();
        let mut ranges = self.ranges.lock();
        *ranges = theirs;
        self.publish(&ranges);
    }

    /// Taints in `other` what is tainted here, and is not there. That was to be written later, and failed by itself; or its
    /// cause is known already, and stays what somebody may have been told.
    #[cfg(feature = "cuda")]
    pub(crate) fn spread(&self, other: &Taint) {
        let mut new = self.ranges.lock().clone();
        let mut ranges = other.ranges.lock();
        ranges.iter().for_each(|(known, _)| cut(&mut new, &known.clone().into()));
        if new.is_empty() {
            return;
        }
        note_change();
        ranges.append(&mut new);
        other.publish(&ranges);
    }

    /// Clean again, for another tenant.
    pub(crate) fn reset(&mut self) {
        self.ranges.get_mut().clear();
        *self.count.get_mut() = 0;
    }

    #[inline]
    pub(crate) fn is_clean(&self) -> bool {
        // Acquire pairs with `publish`. Operations on one byte are ordered by their queues, and that order carries
        // the count too; a stale zero can only be seen by an operation that no failure precedes.
        self.count.load(Ordering::Acquire) == 0
    }

    fn publish(&self, ranges: &[(Range<usize>, Arc<Error>)]) {
        self.count.store(ranges.len(), Ordering::Release);
    }
}

/// How often anything was tainted in this process. While it stays the same, bytes that were found clean are clean.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
static CHANGES: AtomicU64 = AtomicU64::new(0);

fn note_change() {
    // Relaxed: who must see the taint sees the number too, since operations on one byte are ordered by locks.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    CHANGES.fetch_add(1, Ordering::Relaxed);
}

/// The number of [changes](CHANGES) so far.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) fn changes() -> u64 {
    CHANGES.load(Ordering::Relaxed)
}

/// What an operation uses of an allocation: a range, or the rows of one.
#[derive(Clone, Debug)]
pub(crate) struct Bytes {
    span: Range<usize>,
    rows: Pitch,
}

impl Bytes {
    pub(crate) fn new(span: Range<usize>, pitch: Option<Pitch>) -> Self {
        // A range is one row, whose step is what no other one starts at.
        let whole = Pitch { rows: 1, row: span.len(), step: span.len().max(1) };
        Bytes { rows: pitch.unwrap_or(whole), span }
    }

    fn all(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        self.rows.ranges(self.span.start)
    }

    /// Those pieces that share a byte with `range`, in order.
    fn meeting(&self, range: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        self.rows.meeting(self.span.start, range)
    }
}

impl From<Range<usize>> for Bytes {
    fn from(range: Range<usize>) -> Self {
        Bytes::new(range, None)
    }
}

/// Removes `holes` from every range, which leaves what lies before, between and behind them.
fn cut(ranges: &mut Vec<(Range<usize>, Arc<Error>)>, holes: &Bytes) {
    let mut rest = Vec::new();
    ranges.retain_mut(|(range, cause)| {
        let mut met = holes.meeting(range).peekable();
        if met.peek().is_none() {
            return true;
        }
        let mut start = range.start;
        for hole in met {
            if start < hole.start {
                rest.push((start..hole.start, cause.clone()));
            }
            start = hole.end;
        }
        range.start = start;
        range.start < range.end
    });
    ranges.append(&mut rest);
}

/// Whether nothing that `command` uses is tainted, so that there is nothing to [`admit`] or [`settle`].
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) fn is_clean<B: Backend>(command: CommandRef<'_, B>) -> bool {
    command.args.regions.iter().flat_map(|region| &region.contents).all(|contents| contents.taint.is_clean())
}

/// The root cause that forbids `command` to run, if a byte that it reads is tainted.
pub(crate) fn admit<B: Backend>(command: CommandRef<'_, B>) -> Option<Arc<Error>> {
    let pitch = command.job.pitch();
    command.args.regions.iter().filter(|region| reads(region, pitch)).find_map(|region| {
        let contents = region.contents.as_ref()?;
        contents.taint.find(Bytes::new(region.range(), pitch))
    })
}

/// After a command that ran: what it fully wrote is clean.
pub(crate) fn settle<B: Backend>(command: CommandRef<'_, B>) {
    let pitch = command.job.pitch();
    for region in command.args.regions.iter().filter(|region| !reads(region, pitch)) {
        if let Some(contents) = &region.contents {
            contents.taint.clear(Bytes::new(region.range(), pitch));
        }
    }
}

/// [`settle`], for a command that may be a move, whose bytes keep what is known of them.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) fn settle_moved<B: Backend>(command: CommandRef<'_, B>) {
    match (&command.job.0, command.args.regions) {
        (Work::Move, [Region { contents: Some(from), .. }, Region { contents: Some(to), .. }]) => {
            to.taint.adopt(&from.taint);
        }
        _ => settle(command),
    }
}

/// After a command that failed or was skipped: everything that it was to write carries `cause`.
pub(crate) fn fail<B: Backend>(command: CommandRef<'_, B>, cause: &Arc<Error>) {
    let pitch = command.job.pitch();
    for region in command.args.regions.iter().filter(|region| region.access.writes()) {
        if let Some(contents) = &region.contents {
            contents.taint.set(Bytes::new(region.range(), pitch), cause.clone());
        }
    }
}

/// Whether the command sees what the bytes held. To the order of things a write in rows uses the padding as well, which
/// it leaves as it is; it looks at none of it.
pub(crate) fn reads<B: Backend>(region: &Region<B>, pitch: Option<Pitch>) -> bool {
    match pitch {
        Some(_) => !region.access.writes(),
        None => region.access.reads(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(n: usize) -> Arc<Error> {
        Arc::new(Error::OutOfRange { start: n, end: n, len: n })
    }

    fn start_of(taint: &Taint, range: Range<usize>) -> Option<usize> {
        taint.find(range).map(|cause| match *cause {
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

    /// A failure that is known late would else take the blame for what failed after it, and bytes would change their cause.
    #[test]
    #[cfg(feature = "cuda")]
    fn what_spreads_leaves_alone_what_is_tainted_already() {
        let (late, taint) = (Taint::default(), Taint::default());
        late.set(0..10, cause(1));
        late.set(20..30, cause(2));
        taint.set(5..25, cause(3));
        late.spread(&taint);
        let causes = [0, 5, 12, 20, 25].map(|at| start_of(&taint, at..at + 1));
        assert_eq!(causes, [1, 3, 3, 3, 2].map(Some));
        assert_eq!(start_of(&taint, 30..40), None);
        taint.clear(0..30);
        assert!(taint.is_clean());
    }

    /// Rows that were tainted as one range would leave padding behind that nobody ever writes again.
    #[test]
    fn rows_are_tainted_and_cleared_without_what_lies_between_them() {
        let rows = |start: usize| {
            let pitch = Pitch { rows: 3, row: 4, step: 10 };
            Bytes::new(start..start + 24, Some(pitch))
        };
        let taint = Taint::default();
        taint.set(rows(0), cause(1));
        assert_eq!(start_of(&taint, 0..1), Some(1));
        assert_eq!(start_of(&taint, 4..10), None);
        assert_eq!(start_of(&taint, 23..30), Some(1));
        assert!(taint.find(rows(4)).is_none());
        assert!(taint.find(rows(3)).is_some());
        taint.clear(rows(0));
        assert!(taint.is_clean());
        taint.set(0..100, cause(2));
        taint.clear(rows(10));
        assert_eq!(start_of(&taint, 10..14), None);
        assert_eq!(start_of(&taint, 14..15), Some(2));
        assert_eq!(start_of(&taint, 30..34), None);
        assert_eq!(start_of(&taint, 34..100), Some(2));
        assert!(taint.find(rows(10)).is_none());
    }
}
