//! Recording, planning and graphs, as their users see them.

#[path = "graphs/arena.rs"]
mod arena;
#[path = "graphs/edges.rs"]
mod edges;
#[path = "graphs/embedding.rs"]
mod embedding;
#[path = "graphs/eviction.rs"]
mod eviction;
#[path = "graphs/nodes.rs"]
mod nodes;
#[path = "graphs/random.rs"]
mod random;
#[path = "graphs/status.rs"]
mod status;
mod support;
#[path = "graphs/zeroing.rs"]
mod zeroing;

use dacapo::prelude::*;

/// Elements of a small buffer: 256 bytes, which alignment leaves as they are.
pub const N: usize = 64;

/// Per node, the nodes that it directly follows.
pub fn after(graph: &Graph) -> Vec<Vec<usize>> {
    (0..graph.nodes()).map(|n| graph.node(n).unwrap().after).collect()
}
