//! From what each node reads and writes to the edges between them.

#![forbid(unsafe_code)]
// reason: node numbers index lists with one element a node, and the tracks of all allocations are made before any
// use is looked at.
#![allow(clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::ops::Range;

use smallvec::SmallVec;

use super::reach::Builder;
use crate::access::Access;

const NONE: u32 = u32::MAX;

/// One use of one allocation by one node: the bytes `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) alloc: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) access: Access,
}

/// What a node uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Footprint<'a> {
    pub(crate) uses: &'a [Use],
    /// Ordered after everything recorded before it and before everything recorded after it.
    pub(crate) barrier: bool,
}

/// The edges of a graph, none of which the others imply, from lower to higher indices.
#[derive(Debug, Default)]
pub struct Dag {
    preds: Lists,
}

impl Dag {
    /// With room for so many nodes, most of which follow one.
    pub(crate) fn with_capacity(nodes: usize) -> Self {
        Dag { preds: Lists::with_capacity(nodes) }
    }

    /// Adds the next node, which directly follows `preds`, ascending.
    #[inline]
    pub(crate) fn push(&mut self, preds: &[u32]) {
        self.preds.push(preds);
    }

    /// How many nodes there are.
    pub(crate) fn len(&self) -> usize {
        self.preds.ends.len()
    }

    /// How many edges there are.
    pub(crate) fn edge_count(&self) -> usize {
        self.preds.flat.len()
    }

    /// The nodes that `n` directly follows, ascending; empty for a node that is not there.
    pub(crate) fn preds(&self, n: u32) -> &[u32] {
        self.preds.list(n)
    }

    /// For each node the nodes that directly follow it, ascending. Worked out here: not every backend asks.
    pub(crate) fn succs(&self) -> Lists {
        self.preds.transposed()
    }
}

/// The edges of `nodes`, and what knows their order, in record order: exactly the conflicts of their uses, by byte range,
/// and their barriers.
///
/// `uses` are those of all nodes, and `allocs` is one more than the highest number of an allocation in them. A use costs one
/// step for each piece of its range that was last used differently: many uses of whole allocations or of fixed slices are
/// cheap, many reads of all that many small writes wrote are not.
pub(crate) fn data_flow<'a>(
    nodes: impl Iterator<Item = Footprint<'a>>,
    uses: &[Use],
    allocs: usize,
) -> Builder {
    let mut tracks = tracks(uses, allocs);
    let tracks = tracks.as_mut_slice();
    let mut builder = Builder::new(nodes.size_hint().0);
    // A node that follows none needs no room here.
    let mut found = Vec::new();
    let mut barrier = None;
    for (n, node) in (0_u32..).zip(nodes) {
        found.clear();
        for used in node.uses.iter().filter(|used| used.start < used.end) {
            tracks[used.alloc as usize].apply(n, used, &mut builder, &mut found);
        }
        if node.barrier {
            builder.push_barrier(barrier.unwrap_or(0));
            barrier = Some(n);
            continue;
        }
        // What comes before the last barrier is ordered by it.
        if barrier.is_some() || found.last() == Some(&n) || found.len() > 1 {
            found.retain(|p| *p != n && barrier.is_none_or(|b| *p > b));
            if found.is_empty() {
                found.extend(barrier);
            }
            found.sort_unstable();
            found.dedup();
        }
        builder.push(&mut found);
    }
    builder
}

/// The graph in which each of `nodes` nodes follows the one before it.
pub(crate) fn sequential(nodes: usize) -> Builder {
    let mut builder = Builder::new(nodes);
    for n in 0..nodes as u32 {
        let mut before: Vec<u32> = n.checked_sub(1).into_iter().collect();
        builder.push(&mut before);
    }
    builder
}

/// One list a node, stored end to end.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    ends: Vec<usize>,
    flat: Vec<u32>,
}

impl Lists {
    /// With room for so many lists, most of which have one element.
    fn with_capacity(lists: usize) -> Self {
        Lists { ends: Vec::with_capacity(lists), flat: Vec::with_capacity(lists.saturating_sub(1)) }
    }

    #[inline]
    fn push(&mut self, list: &[u32]) {
        match list {
            [only] => self.flat.push(*only),
            _ => self.flat.extend_from_slice(list),
        }
        self.ends.push(self.flat.len());
    }

    /// The list of `n`; empty for a node that is not there.
    pub(crate) fn list(&self, n: u32) -> &[u32] {
        let n = n as usize;
        let Some(&end) = self.ends.get(n) else { return &[] };
        let start = if n == 0 { 0 } else { self.ends[n - 1] };
        &self.flat[start..end]
    }

    /// The lists of who names whom; sorted, since the naming nodes are visited in order.
    fn transposed(&self) -> Lists {
        let mut next = vec![0; self.ends.len()];
        for named in &self.flat {
            next[*named as usize] += 1;
        }
        let mut total = 0;
        for count in &mut next {
            total += std::mem::replace(count, total);
        }
        let mut flat = vec![0; total];
        for n in 0..self.ends.len() as u32 {
            for named in self.list(n) {
                let at = &mut next[*named as usize];
                flat[*at] = n;
                *at += 1;
            }
        }
        // Filling a list moved its start to its end.
        Lists { ends: next, flat }
    }
}

/// Who used the bytes of one allocation last.
struct Track {
    /// From the first byte that any node used so far to the last; a use of exactly these takes the short way.
    extent: Range<u64>,
    /// Where nothing ever writes, no use conflicts, and nothing is tracked.
    written: bool,
    state: State,
}

enum State {
    /// All bytes have the same last uses.
    Whole(Last),
    /// Consecutive pieces of the extent, by where they start.
    Pieces(BTreeMap<u64, Piece>),
}

struct Piece {
    end: u64,
    last: Last,
}

/// The last node to write some bytes, and the nodes that have read them since.
#[derive(Clone)]
struct Last {
    writer: u32,
    readers: SmallVec<[u32; 3]>,
}

impl Last {
    fn written_by(writer: u32) -> Self {
        Self { writer, readers: SmallVec::new() }
    }

    /// Notes a use by `n`, and adds to `found` whatever it must follow. A writer with readers is left out: the
    /// readers follow it.
    #[inline]
    fn apply(&mut self, n: u32, access: Access, order: &mut Builder, found: &mut Vec<u32>) {
        if access.writes() && !self.readers.is_empty() {
            found.extend_from_slice(&self.readers);
        } else if self.writer != NONE {
            found.push(self.writer);
        }
        if access.writes() {
            self.writer = n;
            self.readers.clear();
        } else if self.readers.last() != Some(&n) {
            // What follows the newer reader follows the older one: along a chain, the list stays short.
            if let [.., older, newer] = self.readers[..]
                && order.order().0.happens_before(older, newer)
            {
                self.readers.truncate(self.readers.len() - 2);
                self.readers.push(newer);
            }
            self.readers.push(n);
        }
    }
}

fn tracks(uses: &[Use], allocs: usize) -> SmallVec<[Track; 2]> {
    let unused = || Track { extent: 0..0, written: false, state: State::Whole(Last::written_by(NONE)) };
    let mut tracks: SmallVec<[Track; 2]> = SmallVec::with_capacity(allocs);
    tracks.extend(std::iter::repeat_with(unused).take(allocs));
    let all = tracks.as_mut_slice();
    uses.iter().for_each(|used| all[used.alloc as usize].written |= used.access.writes());
    tracks
}

impl Track {
    /// Notes a use by `n`, and adds to `found` what it must follow, with repetitions and perhaps `n` itself.
    #[inline]
    fn apply(&mut self, n: u32, used: &Use, order: &mut Builder, found: &mut Vec<u32>) {
        if !self.written {
            return;
        }
        let whole = used.start == self.extent.start && used.end == self.extent.end;
        match &mut self.state {
            State::Whole(last) if whole => last.apply(n, used.access, order, found),
            State::Whole(_) | State::Pieces(_) => self.apply_to_pieces(n, used, order, found),
        }
    }

    /// [`apply`](Track::apply), where not all bytes have the same last uses, or not all will have.
    fn apply_to_pieces(&mut self, n: u32, used: &Use, order: &mut Builder, found: &mut Vec<u32>) {
        self.extend_to(used);
        let whole = used.start == self.extent.start && used.end == self.extent.end;
        let pieces = match &mut self.state {
            State::Whole(last) if whole => return last.apply(n, used.access, order, found),
            State::Whole(_) => return,
            State::Pieces(pieces) => pieces,
        };
        split(pieces, used.start);
        split(pieces, used.end);
        for piece in pieces.range_mut(used.start..used.end).map(|(_, piece)| piece) {
            piece.last.apply(n, used.access, order, found);
        }
        if whole && used.access.writes() {
            self.state = State::Whole(Last::written_by(n));
        } else if used.access.writes() {
            join(pieces, used.start..used.end);
        }
    }

    /// Makes `used` a part of the extent, in pieces unless it is the first use.
    fn extend_to(&mut self, used: &Use) {
        let Range { start, end } = self.extent;
        if start == end {
            self.extent = used.start..used.end;
            return;
        }
        self.extent = start.min(used.start)..end.max(used.end);
        if let State::Whole(last) = &self.state {
            let piece = Piece { end, last: last.clone() };
            self.state = State::Pieces(BTreeMap::from([(start, piece)]));
        }
        let State::Pieces(pieces) = &mut self.state else { return };
        // What lies between two uses is nobody's yet.
        let unused = |end| Piece { end, last: Last::written_by(NONE) };
        if used.start < start {
            pieces.insert(used.start, unused(start));
        }
        if used.end > end {
            pieces.insert(end, unused(used.end));
        }
    }
}

/// Makes a piece start at `at`, unless that is an end of the extent.
fn split(pieces: &mut BTreeMap<u64, Piece>, at: u64) {
    let Some((&start, piece)) = pieces.range_mut(..=at).next_back() else { return };
    if start < at && at < piece.end {
        let rest = Piece { end: piece.end, last: piece.last.clone() };
        piece.end = at;
        pieces.insert(at, rest);
    }
}

/// Makes one piece of those in `range`, which have just been written as one.
fn join(pieces: &mut BTreeMap<u64, Piece>, range: Range<u64>) {
    while let Some(next) = pieces.range(range.start + 1..range.end).next().map(|(start, _)| *start) {
        pieces.remove(&next);
    }
    if let Some(piece) = pieces.get_mut(&range.start) {
        piece.end = range.end;
    }
}
