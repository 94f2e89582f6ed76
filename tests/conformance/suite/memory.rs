//! Memory: what is kept and what is given back, what moves, and that nobody sees anybody else's bytes.

mod bounds;
mod fresh;
mod fresh_graphs;
mod growth;
mod kernels;
mod life;
mod lifetimes;
mod moves;
mod neighbours;
mod objects;
mod permutations;
mod pinned;
mod pinning;
mod pitched;
pub mod planted;
mod pressure;
mod reads;
mod report;
mod sparse;
mod tables;
mod teardown;

use super::{subject, support, zoo};

use dacapo::MemoryUsage;
use support::*;

/// What the device holds when nothing was freed yet: what [`assert_returns_to`] must find again.
fn baseline(stream: &mut Stream) -> MemoryUsage {
    stream.sync().unwrap();
    stream.device().memory_usage()
}

/// Cleans up until the device holds exactly `baseline`, as it must in the end.
#[track_caller]
fn assert_returns_to(stream: &mut Stream, baseline: MemoryUsage) {
    let device = stream.device();
    let returns = eventually(|| {
        stream.memory_cleanup().unwrap();
        device.memory_usage() == baseline
    });
    assert!(returns, "held {:?}, and the baseline was {baseline:?}", device.memory_usage());
}
