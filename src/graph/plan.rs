//! Where each temporary of a graph lies in the graph's one arena.
//!
//! Requests are placed in the order of their first use. The arena is tiled by blocks, each of which remembers the
//! request that holds it or held it last; one occupant is enough, since it came after all earlier ones. A request
//! may take bytes from their occupant only where every use of the occupant happens before every use of the
//! request, so that sharing adds no edge to the graph. Work is bounded per request: where the few most promising
//! blocks cannot be had, the arena grows.

#![forbid(unsafe_code)]
// reason: blocks name requests by the index that the one loop over the requests gave them, and no list shrinks.
#![allow(clippy::indexing_slicing)]

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use super::flow::Dag;
use super::reach::Reach;

/// How many blocks of exactly the right size are tried, the latest to be released first.
const EXACT_TRIES: usize = 12;
/// How many blocks of at least the right size are tried, the smallest first.
const FIT_TRIES: usize = 24;
/// How many smaller blocks are tried together with the free blocks behind them.
const MERGE_TRIES: usize = 8;
/// How many free blocks in a row may be taken together.
const MERGE_BLOCKS: usize = 32;
/// How many nodes on the way to its first use are asked what was last used there.
const HINT_NODES: usize = 16;
/// How many pairs of nodes may be compared per request and per use; what one request leaves, later ones may spend.
const PAIRS: u64 = 256;

/// One temporary.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) bytes: u64,
    /// The nodes that use it, zeroing included, ascending and distinct.
    pub(crate) uses: Vec<u32>,
}

/// Where the temporaries of a graph lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Per request; `None` for one without bytes or uses.
    pub(crate) offsets: Vec<Option<u64>>,
    /// The size of the arena. Sizes saturate: an arena of `u64::MAX` bytes is one that cannot exist, and its
    /// offsets mean nothing.
    pub(crate) bytes: u64,
    /// What the same requests would take without sharing.
    pub(crate) unshared: u64,
}

/// Places every request at a multiple of `align`.
pub(crate) fn plan(requests: &[Request], reach: &Reach, dag: &Dag, align: u64) -> Plan {
    let mut order: Vec<Placed<'_>> = requests
        .iter()
        .enumerate()
        .filter_map(|(at, request)| Placed::new(at, request, align.max(1)))
        .collect();
    order.sort_by_key(|placed| placed.first);
    let mut releases: Vec<u32> = (0..order.len() as u32).collect();
    releases.sort_by_key(|at| order[*at as usize].last);
    let mut releases = releases.into_iter().peekable();

    let mut plan = Plan { offsets: vec![None; requests.len()], ..Plan::default() };
    let mut arena = Arena::new(reach, dag, order);
    for at in 0..arena.order.len() {
        let first = arena.order[at].first;
        while let Some(done) = releases.next_if(|done| arena.order[*done as usize].last < first) {
            arena.release(done);
        }
        arena.place(at as u32);
        let placed = &arena.order[at];
        plan.offsets[placed.request] = Some(placed.offset);
        plan.unshared = plan.unshared.saturating_add(placed.bytes);
    }
    plan.bytes = arena.bytes;
    plan
}

/// A request in the order of placing.
struct Placed<'a> {
    request: usize,
    uses: &'a [u32],
    first: u32,
    last: u32,
    /// Rounded up to the alignment.
    bytes: u64,
    offset: u64,
    /// Uses such that whatever follows them all follows every use; known from its release on.
    latest: Vec<u32>,
}

impl<'a> Placed<'a> {
    /// `None` for a request that needs no place.
    fn new(request: usize, wanted: &'a Request, align: u64) -> Option<Self> {
        let (first, last) = (*wanted.uses.first()?, *wanted.uses.last()?);
        let bytes = wanted.bytes.checked_next_multiple_of(align).unwrap_or(u64::MAX);
        let placed = Self { request, uses: &wanted.uses, first, last, bytes, offset: 0, latest: Vec::new() };
        (bytes > 0).then_some(placed)
    }
}

/// A piece of the arena; its map knows where it starts.
#[derive(Clone, Copy)]
struct Block {
    bytes: u64,
    /// The latest occupant, as an index in the order of placing.
    owner: u32,
    free: bool,
}

/// What a request asks of the blocks that it takes.
struct Search {
    bytes: u64,
    /// Uses such that whatever comes before them all comes before every use.
    earliest: Vec<u32>,
}

struct Arena<'a> {
    reach: &'a Reach,
    dag: &'a Dag,
    order: Vec<Placed<'a>>,
    bytes: u64,
    /// All blocks, by where they start: they tile the arena.
    blocks: BTreeMap<u64, Block>,
    /// The free blocks, by size, last use and start.
    free: BTreeSet<(u64, u32, u64)>,
    /// Per node: the released requests whose last use it is.
    ended: Vec<SmallVec<[u32; 2]>>,
    pairs_left: Cell<u64>,
}

impl<'a> Arena<'a> {
    fn new(reach: &'a Reach, dag: &'a Dag, order: Vec<Placed<'a>>) -> Self {
        Self {
            reach,
            dag,
            order,
            bytes: 0,
            blocks: BTreeMap::new(),
            free: BTreeSet::new(),
            ended: vec![SmallVec::new(); dag.len()],
            pairs_left: Cell::new(1 << 16),
        }
    }

    /// Offers the bytes of a request whose last use, in record order, is over.
    fn release(&mut self, at: u32) {
        let placed = &mut self.order[at as usize];
        // Nothing can follow a use that nothing follows: these bytes are never free again.
        if placed.uses.iter().any(|n| self.reach.is_sink(*n)) {
            return;
        }
        placed.latest = frontier(placed.uses.iter().rev(), |n, kept| self.reach.happens_before(n, kept));
        self.ended[placed.last as usize].push(at);
        if let Some(block) = self.blocks.get_mut(&placed.offset) {
            block.free = true;
            self.free.insert((block.bytes, placed.last, placed.offset));
        }
    }

    /// Finds bytes for a request, and makes it their occupant.
    fn place(&mut self, at: u32) {
        let placed = &self.order[at as usize];
        let more = PAIRS * (1 + placed.uses.len() as u64);
        self.pairs_left.set(self.pairs_left.get().saturating_add(more));
        let earliest = frontier(placed.uses.iter(), |n, kept| self.reach.happens_before(kept, n));
        let search = Search { bytes: placed.bytes, earliest };
        let start = self.find(&search, placed.first).unwrap_or_else(|| self.tail(&search));
        self.take(start, search.bytes, at);
        self.order[at as usize].offset = start;
    }

    /// Where the request fits without growing the arena, wasting little.
    fn find(&self, search: &Search, first: u32) -> Option<u64> {
        let mut best = None;
        for start in self.hinted(first) {
            match self.run(search, start) {
                Run::Fits(0) => return Some(start),
                Run::Fits(waste) if best.is_none_or(|(least, _)| waste < least) => {
                    best = Some((waste, start))
                }
                Run::Fits(_) | Run::ReachesEnd | Run::Taken => {}
            }
        }
        let found =
            self.candidates(search.bytes).into_iter().find_map(|start| match self.run(search, start) {
                Run::Fits(waste) => Some((waste, start)),
                Run::ReachesEnd | Run::Taken => None,
            });
        best.into_iter().chain(found).min().map(|(_, start)| start)
    }

    /// Where free blocks start whose owner was last used shortly before `first`, on the way there through the
    /// graph: among many parallel chains, those are the ones that come before it.
    fn hinted(&self, first: u32) -> Vec<u64> {
        let mut starts = Vec::new();
        let mut node = first;
        for _ in 0..HINT_NODES {
            let preds = self.dag.preds(node);
            for ended in preds.iter().rev().take(4).map(|pred| &self.ended[*pred as usize]) {
                starts.extend(ended.iter().rev().take(4).flat_map(|at| self.blocks_of(*at)));
            }
            let Some(last) = preds.last() else { break };
            node = *last;
        }
        starts
    }

    /// Where the blocks start that still belong to a released request.
    fn blocks_of(&self, at: u32) -> impl Iterator<Item = u64> {
        let placed = &self.order[at as usize];
        let blocks = self.blocks.range(placed.offset..placed.offset.saturating_add(placed.bytes));
        blocks.take(4).filter(move |(_, block)| block.owner == at).map(|(start, _)| *start)
    }

    /// Where the most promising free blocks start, best first.
    fn candidates(&self, bytes: u64) -> Vec<u64> {
        let exact = self.free.range((bytes, 0, 0)..=(bytes, u32::MAX, u64::MAX)).rev().take(EXACT_TRIES);
        let larger = self.free.range((bytes, 0, 0)..).take(FIT_TRIES);
        let smaller = self.free.range(..(bytes, 0, 0)).rev().take(MERGE_TRIES);
        exact.chain(larger).chain(smaller).map(|(_, _, start)| *start).collect()
    }

    /// Whether the request can have the blocks from `start` on, as many as it needs.
    fn run(&self, search: &Search, start: u64) -> Run {
        let mut end = start;
        for block in self.blocks.range(start..).map(|(_, block)| block).take(MERGE_BLOCKS) {
            if !block.free || !self.ordered(&self.order[block.owner as usize], search) {
                return Run::Taken;
            }
            end = end.saturating_add(block.bytes);
            if end - start >= search.bytes {
                return Run::Fits(end - start - search.bytes);
            }
        }
        if end == self.bytes { Run::ReachesEnd } else { Run::Taken }
    }

    /// Whether every use of `owner`, which is released, happens before every use of the request. "No" once too
    /// many pairs were compared.
    fn ordered(&self, owner: &Placed<'_>, search: &Search) -> bool {
        owner.latest.iter().all(|before| {
            search.earliest.iter().all(|after| {
                let left = self.pairs_left.get().saturating_sub(1);
                self.pairs_left.set(left);
                left > 0 && self.reach.happens_before(*before, *after)
            })
        })
    }

    /// Where to place what fits nowhere: at the end, or over those last blocks that the request can have.
    fn tail(&self, search: &Search) -> u64 {
        let starts = self.blocks.keys().rev().take(MERGE_TRIES);
        let over = starts.take_while(|start| matches!(self.run(search, **start), Run::ReachesEnd));
        over.last().copied().unwrap_or(self.bytes)
    }

    /// Replaces what lies under `bytes` bytes from `start` on by one block of `at`, growing the arena.
    fn take(&mut self, start: u64, bytes: u64, at: u32) {
        let end = start.saturating_add(bytes);
        while let Some((from, block)) =
            self.blocks.range(start..end).next().map(|(from, block)| (*from, *block))
        {
            let last = self.order[block.owner as usize].last;
            self.blocks.remove(&from);
            self.free.remove(&(block.bytes, last, from));
            let rest = (from + block.bytes).saturating_sub(end);
            if rest > 0 {
                self.blocks.insert(end, Block { bytes: rest, ..block });
                self.free.insert((rest, last, end));
            }
        }
        self.blocks.insert(start, Block { bytes: end - start, owner: at, free: false });
        self.bytes = self.bytes.max(end);
    }
}

/// What a request finds from some place in the arena on.
enum Run {
    /// Enough bytes, and how many stay over.
    Fits(u64),
    /// Too few bytes, but the arena can grow behind them.
    ReachesEnd,
    /// Bytes that it cannot have, or too many small pieces.
    Taken,
}

/// `uses` without most of those that others imply. Only the first ones kept are asked: one use too many costs time.
fn frontier<'u>(uses: impl Iterator<Item = &'u u32>, implied: impl Fn(u32, u32) -> bool) -> Vec<u32> {
    let mut kept: Vec<u32> = Vec::new();
    for n in uses {
        if !kept.iter().take(8).any(|other| implied(*n, *other)) {
            kept.push(*n);
        }
    }
    kept
}
