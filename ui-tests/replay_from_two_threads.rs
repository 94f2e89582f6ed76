//! Two replays of one graph at once would write the same bytes: take turns behind a lock, or record one graph each.

use dacapo::prelude::*;

fn on_two_threads<T>(_one: impl FnOnce() -> T + Send, _other: impl FnOnce() -> T + Send) {}

fn race(graph: &mut Graph, one: &mut Stream, other: &mut Stream) {
    on_two_threads(|| graph.replay(one), || graph.replay(other));
}

fn main() {}
