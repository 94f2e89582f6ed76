//! `&mut` is what keeps two replays of one graph apart, and a second handle would void it: record twice, or embed it.

use dacapo::prelude::*;

fn twice(graph: &Graph) -> Graph {
    graph.clone()
}

fn main() {}
