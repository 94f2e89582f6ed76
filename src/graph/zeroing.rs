//! Which implicit zero fills a graph can do without.
//!
//! Memory handed out in a recording reads as zeros, so each allocation records a fill. Most buffers are
//! overwritten before anyone looks, and their fill would only cost time on every replay.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use super::flow::{Footprint, Use};
use crate::access::Access;

/// Per node, whether it must stay in the graph. Only implicit fills can be false.
///
/// `implicit_fill_of` names the allocation that a node is the implicit fill of; the fill's own footprint is not
/// looked at. `survives` says whether an allocation can be read after the recording, and `size` how many bytes it
/// has. `allocs` is a hint of how many there are.
///
/// A fill is needed if a node may read a byte that no [`Access::Write`] has covered since the fill, or if the
/// allocation survives with such a byte. A [`Access::ReadWrite`] covers nothing: it may write in part. Barriers that
/// name no bytes touch none. Where an allocation was used or filled before its fill, the fill has something to
/// erase and stays.
pub(crate) fn needed<'a>(
    nodes: impl Iterator<Item = Footprint<'a>>,
    implicit_fill_of: impl Fn(u32) -> Option<u32>,
    survives: impl Fn(u32) -> bool,
    size: impl Fn(u32) -> u64,
    allocs: usize,
) -> Vec<bool> {
    let mut needed = Vec::new();
    let mut states: Vec<State> = Vec::with_capacity(allocs);
    for (n, node) in (0_u32..).zip(nodes) {
        let Some(alloc) = implicit_fill_of(n) else {
            needed.push(true);
            apply(&mut states, node.uses, &mut needed);
            continue;
        };
        let state = state(&mut states, alloc);
        let fresh = matches!(state, State::Untouched);
        *state = if fresh { State::Filled(Filled::new(n, size(alloc))) } else { State::Settled };
        needed.push(!fresh);
    }
    for (alloc, state) in (0_u32..).zip(&states) {
        if let State::Filled(filled) = state
            && filled.exposes(0, filled.size)
            && survives(alloc)
        {
            keep(&mut needed, filled.fill);
        }
    }
    needed
}

/// What became of an allocation so far.
enum State {
    /// Neither used nor filled.
    Untouched,
    /// Filled by a node that nothing has needed yet.
    Filled(Filled),
    /// Nothing is left to decide.
    Settled,
}

struct Filled {
    fill: u32,
    size: u64,
    /// Bytes overwritten since the fill, start to end; neither overlapping nor touching.
    covered: BTreeMap<u64, u64>,
}

impl Filled {
    fn new(fill: u32, size: u64) -> Self {
        Self { fill, size, covered: BTreeMap::new() }
    }

    /// Whether a byte of `start..end` still holds what the fill wrote.
    fn exposes(&self, start: u64, end: u64) -> bool {
        let end = end.min(self.size);
        start < end && self.covered.range(..=start).next_back().is_none_or(|(_, covered)| *covered < end)
    }

    fn cover(&mut self, mut start: u64, mut end: u64) {
        while let Some((&from, &to)) = self.covered.range(..=end).next_back() {
            if to < start {
                break;
            }
            self.covered.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.covered.insert(start, end);
    }
}

/// Applies the uses of one node. All its reads come first: they see what was there before any of its writes.
fn apply(states: &mut Vec<State>, uses: &[Use], needed: &mut [bool]) {
    let uses = || uses.iter().filter(|used| used.start < used.end);
    for used in uses().filter(|used| used.access.reads()) {
        let state = state(states, used.alloc);
        if let State::Filled(filled) = state {
            if !filled.exposes(used.start, used.end) {
                continue;
            }
            keep(needed, filled.fill);
        }
        *state = State::Settled;
    }
    for used in uses().filter(|used| used.access == Access::Write) {
        match state(states, used.alloc) {
            State::Filled(filled) => filled.cover(used.start, used.end),
            state => *state = State::Settled,
        }
    }
}

fn state(states: &mut Vec<State>, alloc: u32) -> &mut State {
    let alloc = alloc as usize;
    if alloc >= states.len() {
        states.resize_with(alloc + 1, || State::Untouched);
    }
    // reason: the list was just made long enough.
    #[allow(clippy::indexing_slicing)]
    &mut states[alloc]
}

fn keep(needed: &mut [bool], fill: u32) {
    if let Some(needed) = needed.get_mut(fill as usize) {
        *needed = true;
    }
}
