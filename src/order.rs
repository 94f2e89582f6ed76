//! What waits for what, across slots.
//!
//! Work of one slot runs in the order of its queue. Everything that an operation on another slot may have to wait for
//! is written down in two kinds of object: an allocation's [`Uses`], and a graph's [`GraphOrder`]. Each object is
//! *owned* by one slot, and one rule makes all orders agree:
//!
//! > An operation holds its own slot's lock while it checks, resolves, enqueues and publishes, and by then its slot owns
//! > every object that it looks at. Ownership moves only under the device's order lock together with the locks of the
//! > old and the new owner, taken in index order.
//!
//! So two operations that share an object exclude each other for the whole of their steps, and waits only ever point
//! at operations that were enqueued before: no cycle, hence no deadlock, whatever order the threads meet in. An
//! operation whose objects are all its slot's own takes one uncontended lock.
//!
//! Objects refer to each other: an allocation to the graphs that it is a member of, a graph to those that it shares bytes
//! with. A reference is made by an operation whose slot owns both ends, so that they have one owner when it appears.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::access::Access;

mod ownership;

pub(crate) use ownership::{Everything, Owner, enter, enter_all, enter_owners};

/// One operation: the `seq`-th of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) slot: u32,
    pub(crate) seq: u64,
}

/// The newest operation of each slot, at most one a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(SmallVec<[Mark; 2]>);

impl Marks {
    pub(crate) fn add(&mut self, mark: Mark) {
        match self.0.iter_mut().find(|known| known.slot == mark.slot) {
            Some(known) => known.seq = known.seq.max(mark.seq),
            None => self.0.push(mark),
        }
    }

    pub(crate) fn extend(&mut self, other: &Marks) {
        other.iter().for_each(|mark| self.add(mark));
    }

    /// Adds those of `other` that are not on `slot`.
    #[inline]
    fn extend_from_others(&mut self, slot: u32, other: &Marks) {
        other.iter().filter(|mark| mark.slot != slot).for_each(|mark| self.add(mark));
    }

    /// Adds a mark that is not on `slot`, if there is one.
    #[inline]
    fn add_from_other(&mut self, slot: u32, mark: Option<Mark>) {
        mark.filter(|mark| mark.slot != slot).into_iter().for_each(|mark| self.add(mark));
    }

    /// Whether there are none but of `slot`.
    #[inline]
    fn are_of(&self, slot: u32) -> bool {
        match self.0.as_slice() {
            [] => true,
            [only] => only.slot == slot,
            _ => false,
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, mark: Mark) {
        if let [only] = self.0.as_mut_slice() {
            *only = mark;
            return;
        }
        self.0.clear();
        self.0.push(mark);
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Mark) -> bool) {
        self.0.retain(|mark| keep(*mark));
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Mark> + '_ {
        self.0.iter().copied()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The last uses of a run of bytes, by byte range: the last write and, per slot, the last read since.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uses {
    /// Sorted, disjoint, none empty; bytes in no segment were never used.
    segments: SmallVec<[Segment; 1]>,
    /// At how many pieces it is worth while to look for some that have passed.
    prune_at: usize,
}

#[derive(Clone, Debug)]
struct Segment {
    range: Range<usize>,
    /// What every use must wait for: the last write. More than one mark only for recycled bytes.
    writes: Marks,
    /// What the next write must wait for as well.
    reads: Marks,
}

impl Uses {
    /// The history that new bytes are born with: every use waits for all of it.
    pub(crate) fn born(len: usize, history: Marks) -> Self {
        let mut uses = Uses::default();
        if len > 0 && !history.is_empty() {
            uses.segments.push(Segment { range: 0..len, writes: history, reads: Marks::default() });
        }
        uses
    }

    /// Adds to `waits` what a use of `range` must wait for.
    pub(crate) fn collect(&self, range: &Range<usize>, access: Access, waits: &mut Marks) {
        for segment in self.segments.iter().filter(|segment| meets(&segment.range, range)) {
            waits.extend(&segment.writes);
            if access.writes() {
                waits.extend(&segment.reads);
            }
        }
    }

    /// Writes down a use of `range`, and adds to `waits` what it must wait for on other slots than its own. `passed` is asked
    /// only now and then.
    #[inline]
    pub(crate) fn meet(
        &mut self,
        range: Range<usize>,
        access: Access,
        mark: Mark,
        waits: &mut Marks,
        passed: impl Fn(Mark) -> bool,
    ) {
        if let [only] = self.segments.as_mut_slice()
            && only.range == range
            && only.is_of(mark.slot)
        {
            only.note(access, mark);
            return;
        }
        self.meet_others(range, access, mark, waits);
        self.tidy(passed);
    }

    /// [`meet`](Uses::meet), where there is more than what one slot did to all of the bytes.
    #[inline(never)]
    fn meet_others(&mut self, range: Range<usize>, access: Access, mark: Mark, waits: &mut Marks) {
        for segment in self.segments.iter().filter(|segment| meets(&segment.range, &range)) {
            waits.extend_from_others(mark.slot, &segment.writes);
            if access.writes() {
                waits.extend_from_others(mark.slot, &segment.reads);
            }
        }
        self.record(range, access, mark);
    }

    /// Writes down a use of `range`, which waited for what [`collect`](Uses::collect) said.
    pub(crate) fn record(&mut self, range: Range<usize>, access: Access, mark: Mark) {
        if range.is_empty() {
            return;
        }
        if let [only] = self.segments.as_mut_slice()
            && only.range == range
        {
            only.note(access, mark);
            return;
        }
        self.split(&range);
        for segment in self.segments.iter_mut().filter(|segment| meets(&segment.range, &range)) {
            segment.note(access, mark);
        }
        self.cover(&range, access, mark);
        self.merge();
    }

    /// Adds an operation that nothing here waited for, or that waited for nothing here: it replaces no mark.
    pub(crate) fn fold(&mut self, range: Range<usize>, access: Access, mark: Mark) {
        if range.is_empty() {
            return;
        }
        self.split(&range);
        for segment in self.segments.iter_mut().filter(|segment| meets(&segment.range, &range)) {
            if access.writes() { segment.writes.add(mark) } else { segment.reads.add(mark) }
        }
        self.cover(&range, access, mark);
        self.merge();
    }

    /// Writes down that `range` was given up: whoever takes it waits for all of `history`.
    pub(crate) fn replace(&mut self, range: Range<usize>, history: Marks) {
        if range.is_empty() {
            return;
        }
        self.split(&range);
        self.segments.retain(|segment| !meets(&segment.range, &range));
        if !history.is_empty() {
            let index = self.segments.iter().take_while(|segment| segment.range.end <= range.start).count();
            self.segments.insert(index, Segment { range, writes: history, reads: Marks::default() });
            self.merge();
        }
    }

    /// Every mark in `range`, reads and writes alike.
    pub(crate) fn history(&self, range: &Range<usize>) -> Marks {
        let mut marks = Marks::default();
        self.collect(range, Access::Write, &mut marks);
        marks
    }

    /// Forgets what `keep` refuses, and segments that hold nothing any more.
    pub(crate) fn prune(&mut self, mut keep: impl FnMut(Mark) -> bool) {
        self.segments.retain(|segment| {
            segment.writes.retain(&mut keep);
            segment.reads.retain(&mut keep);
            !segment.writes.is_empty() || !segment.reads.is_empty()
        });
    }

    /// How many pieces the bytes fall into.
    pub(crate) fn pieces(&self) -> usize {
        self.segments.len()
    }

    /// Forgets what `passed` says is done, where there are many pieces: once for every doubling of what stays, so that a
    /// buffer that is written piece by piece costs the same for every piece.
    fn tidy(&mut self, passed: impl Fn(Mark) -> bool) {
        const MANY: usize = 64;
        if self.segments.len() > self.prune_at.max(MANY) {
            self.prune(|mark| !passed(mark));
            self.prune_at = self.segments.len() * 2;
        }
    }

    /// Forgets which bytes had which uses: all between the first and the last had all of them.
    pub(crate) fn coarsen(&mut self) {
        let (Some(first), Some(last)) = (self.segments.first(), self.segments.last()) else { return };
        let range = first.range.start..last.range.end;
        let history = self.history(&range);
        self.segments.clear();
        self.segments.push(Segment { range, writes: history, reads: Marks::default() });
    }

    /// Makes segment borders at both ends of `range`.
    fn split(&mut self, range: &Range<usize>) {
        for at in [range.start, range.end] {
            let inside = |segment: &Segment| segment.range.start < at && at < segment.range.end;
            if let Some(index) = self.segments.iter().position(inside)
                && let Some(left) = self.segments.get_mut(index)
            {
                let mut right = left.clone();
                left.range.end = at;
                right.range.start = at;
                self.segments.insert(index + 1, right);
            }
        }
    }

    /// Fills the gaps of `range` with segments that know this use only.
    fn cover(&mut self, range: &Range<usize>, access: Access, mark: Mark) {
        let mut at = range.start;
        let mut index = self.segments.iter().take_while(|segment| segment.range.end <= at).count();
        while at < range.end {
            let next = self.segments.get(index).map(|segment| segment.range.clone());
            let gap_end = next.as_ref().map_or(range.end, |next| next.start.min(range.end));
            if at < gap_end {
                let mut segment =
                    Segment { range: at..gap_end, writes: Marks::default(), reads: Marks::default() };
                segment.note(access, mark);
                self.segments.insert(index, segment);
                index += 1;
            }
            at = next.map_or(range.end, |next| next.end.max(gap_end));
            index += 1;
        }
    }

    /// Joins neighbours that say the same, so that the list stays as short as the history is simple.
    fn merge(&mut self) {
        self.segments.dedup_by(|right, left| {
            let same = left.range.end == right.range.start
                && left.writes == right.writes
                && left.reads == right.reads;
            if same {
                left.range.end = right.range.end;
            }
            same
        });
    }
}

impl Segment {
    /// Whether only `slot` has used it.
    #[inline]
    fn is_of(&self, slot: u32) -> bool {
        self.writes.are_of(slot) && self.reads.are_of(slot)
    }

    #[inline]
    fn note(&mut self, access: Access, mark: Mark) {
        if access.writes() {
            self.writes.set(mark);
            self.reads.clear();
        } else {
            self.reads.add(mark);
        }
    }
}

fn meets(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// The one object that orders a graph's replays against everything else.
///
/// Members' records stay out of a replay, which so costs O(1): a use of a member from outside leaves its mark here.
#[derive(Debug)]
pub(crate) struct GraphOrder {
    pub(crate) owner: Owner,
    pub(crate) state: Mutex<Replays>,
    /// Graphs that share bytes with this one, where one of the two writes them.
    pub(crate) links: Links,
}

/// Graphs whose replays a graph's replays must keep their order with. Changed under the lock of the slot that owns both.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// How many there are, so that a replay of a graph that has none takes no lock for them.
    count: AtomicUsize,
    graphs: Mutex<Vec<Arc<GraphOrder>>>,
}

impl Links {
    pub(crate) fn add(&self, graph: &Arc<GraphOrder>) {
        let mut graphs = self.graphs.lock();
        if !graphs.iter().any(|known| Arc::ptr_eq(known, graph)) {
            graphs.push(graph.clone());
        }
        self.count.store(graphs.len(), Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, graph: &Arc<GraphOrder>) {
        let mut graphs = self.graphs.lock();
        graphs.retain(|known| !Arc::ptr_eq(known, graph));
        self.count.store(graphs.len(), Ordering::Relaxed);
    }

    pub(crate) fn take(&self) -> Vec<Arc<GraphOrder>> {
        self.count.store(0, Ordering::Relaxed);
        std::mem::take(&mut *self.graphs.lock())
    }

    /// Calls `visit` with each. Under the lock of the graph's owner; else it is a guess, as the owner is.
    pub(crate) fn each(&self, visit: impl FnMut(&Arc<GraphOrder>)) {
        // Relaxed: it changes only under the lock of the graph's owner, which carries the change.
        if self.count.load(Ordering::Relaxed) > 0 {
            self.graphs.lock().iter().for_each(visit);
        }
    }
}

/// What a replay must wait for, and what must wait for it.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    /// Conflicting uses of members since the last replay.
    pub(crate) noted: Marks,
    /// The last replay.
    pub(crate) last: Option<Mark>,
}

impl GraphOrder {
    pub(crate) fn new(slot: u32, noted: Marks) -> Arc<Self> {
        Arc::new(GraphOrder {
            owner: Owner::new(slot),
            state: Mutex::new(Replays { noted, last: None }),
            links: Links::default(),
        })
    }

    /// Calls `visit` with the owner of every object that a replay looks at: the graph, and its links.
    pub(crate) fn visit(&self, visit: &mut dyn FnMut(&Owner)) {
        visit(&self.owner);
        self.links.each(|link| visit(&link.owner));
    }

    /// Writes down a replay that is about to be enqueued, and adds to `waits` what it must wait for on other slots than its own:
    /// uses of members, its own last replay, and its links'.
    pub(crate) fn replay(&self, mark: Mark, waits: &mut Marks) {
        let mut state = self.state.lock();
        waits.extend_from_others(mark.slot, &state.noted);
        // Later replays wait for this one, which waits for these.
        state.noted.clear();
        waits.add_from_other(mark.slot, state.last.replace(mark));
        drop(state);
        self.links.each(|link| waits.add_from_other(mark.slot, link.state.lock().last));
    }

    /// A conflicting use of a member: waits for the last replay, and is waited for by the next.
    pub(crate) fn use_member(&self, waits: &mut Marks) {
        self.state.lock().last.into_iter().for_each(|last| waits.add(last));
    }

    pub(crate) fn note(&self, mark: Mark) {
        self.state.lock().noted.add(mark);
    }
}

/// That a buffer is a member of a graph, and how the graph uses which of its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    pub(crate) graph: Arc<GraphOrder>,
    pub(crate) ranges: SmallVec<[(Range<usize>, Access); 1]>,
}

impl Membership {
    pub(crate) fn conflicts(&self, range: &Range<usize>, access: Access) -> bool {
        self.ranges.iter().any(|(used, how)| meets(used, range) && how.conflicts(access))
    }
}

#[cfg(test)]
mod tests;
