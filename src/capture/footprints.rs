//! How a graph uses each of its members, for those outside.

#![forbid(unsafe_code)]

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use crate::access::Access;
use crate::backend::Backend;
use crate::graph::commands::Commands;

/// How a graph uses one of its members: few ranges, each with its access.
pub(crate) type Footprints = SmallVec<[(Range<usize>, Access); 1]>;

/// The footprints of each of so many members.
pub(crate) fn footprints<B: Backend>(commands: &Commands<B>, members: usize) -> Vec<Footprints> {
    let mut found: Vec<Footprints> = vec![Footprints::new(); members];
    for used in commands.uses.iter().filter(|used| used.start < used.end) {
        let access = if used.access.writes() { Access::ReadWrite } else { Access::Read };
        let footprint = (used.start as usize..used.end as usize, access);
        let Some(known) = found.get_mut(used.alloc as usize) else { continue };
        // Most graphs use the same bytes again and again.
        if known.last() != Some(&footprint) {
            known.push(footprint);
        }
    }
    found.iter_mut().for_each(summarize);
    found
}

/// Joins what meets, and takes many pieces for one.
fn summarize(footprints: &mut Footprints) {
    /// More pieces than this are taken for everything between the first and the last.
    const PIECES: usize = 8;
    if footprints.len() < 2 {
        return;
    }
    footprints.sort_unstable_by_key(|(range, access)| (access.writes(), range.start));
    footprints.dedup_by(|(next, how_next), (last, how)| {
        let meet = how_next == how && next.start <= last.end;
        if meet {
            last.end = last.end.max(next.end);
        }
        meet
    });
    if footprints.len() > PIECES {
        let start = footprints.iter().map(|(range, _)| range.start).min().unwrap_or(0);
        let end = footprints.iter().map(|(range, _)| range.end).max().unwrap_or(0);
        let writes = footprints.iter().any(|(_, access)| access.writes());
        *footprints = smallvec![(start..end, if writes { Access::ReadWrite } else { Access::Read })];
    }
}
