//! How often each thing happened, so that a soak that did little does not pass for one.

use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Allocation,
    Step,
    Read,
    FutureDropped,
    Graph,
    Replay,
    DroppedInFlight,
    WindowLost,
    Refusal,
    TaintRead,
    Trade,
    Cleanup,
    Compaction,
    HandedDown,
}

const ALL: [What; 14] = [
    What::Allocation,
    What::Step,
    What::Read,
    What::FutureDropped,
    What::Graph,
    What::Replay,
    What::DroppedInFlight,
    What::WindowLost,
    What::Refusal,
    What::TaintRead,
    What::Trade,
    What::Cleanup,
    What::Compaction,
    What::HandedDown,
];

static COUNTS: [AtomicUsize; ALL.len()] = [const { AtomicUsize::new(0) }; ALL.len()];

pub fn count(what: What) {
    COUNTS[what as usize].fetch_add(1, Ordering::Relaxed);
}

/// What has not happened yet, except for what never does.
pub fn missing(never: &[What]) -> Option<What> {
    ALL.into_iter().find(|what| happened(*what) == 0 && !never.contains(what))
}

/// In words; fails if something never happened, except for what never does.
pub fn summary(never: &[What]) -> String {
    let words = ALL.map(|what| format!("{what:?} {}", happened(what))).join(", ");
    if let Some(missing) = missing(never) {
        panic!("in all this time there was no {missing:?}: {words}");
    }
    words
}

fn happened(what: What) -> usize {
    COUNTS[what as usize].load(Ordering::Relaxed)
}
