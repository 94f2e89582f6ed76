//! Looking into a graph.

#![forbid(unsafe_code)]

use std::fmt::Write as _;

use crate::access::Access;
use crate::backend::Backend;
use crate::graph::Graph;
use crate::graph::flow::Use;

/// One node of a graph, as [`Graph::node`] shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeInfo {
    /// The kernel's name, or what is done: `copy`, `fill`, `write`, `host call`, `raw`.
    pub name: String,
    /// Bytes that it reads and bytes that it writes, as its arguments say.
    pub bytes: (usize, usize),
    /// The nodes that it directly waits for, by their place in the recording.
    pub after: Vec<usize>,
}

impl<B: Backend> Graph<B> {
    /// The number of this graph among those of its device, as [`MemoryReport`](crate::MemoryReport) names it.
    pub fn id(&self) -> u64 {
        self.core.id
    }

    /// How many operations a replay runs. Zeroing that nobody could tell from none is left out.
    pub fn nodes(&self) -> usize {
        self.core.list.len()
    }

    /// How many pairs of nodes are ordered directly; what other edges imply is left out.
    pub fn edges(&self) -> usize {
        self.core.dag.edge_count()
    }

    /// Bytes of the arena: what the buffers that only the graph knows take, sharing where they may.
    pub fn arena_bytes(&self) -> usize {
        self.core.arena_bytes
    }

    /// Bytes that those buffers would take with memory of their own each.
    pub fn unshared_bytes(&self) -> usize {
        self.core.unshared_bytes
    }

    /// The `index`-th node, in the order of recording.
    pub fn node(&self, index: usize) -> Option<NodeInfo> {
        let list = &self.core.list;
        let node = list.nodes.get(index)?;
        let uses = list.uses.get(node.uses())?;
        let sum = |counts: fn(Access) -> bool| -> usize {
            let bytes = uses.iter().filter(|used| counts(used.access) && !self.is_token(used));
            bytes.map(|used| (used.end - used.start) as usize).sum()
        };
        let preds = self.core.dag.preds(u32::try_from(index).ok()?);
        Some(NodeInfo {
            name: node.job.name().to_owned(),
            bytes: (sum(Access::reads), sum(Access::writes)),
            after: preds.iter().map(|pred| *pred as usize).collect(),
        })
    }

    fn is_token(&self, used: &Use) -> bool {
        self.core.members.get(used.alloc as usize).is_some_and(|member| member.is_token)
    }

    /// The graph in the DOT language of Graphviz: a node an operation, an edge a direct order.
    pub fn to_dot(&self) -> String {
        let mut dot = String::from("digraph dacapo {\n  node [shape=box, fontname=\"monospace\"];\n");
        for index in 0..self.nodes() {
            let Some(info) = self.node(index) else { continue };
            let name = info.name.replace('\\', "\\\\").replace('"', "\\\"");
            let (read, written) = info.bytes;
            // Writing to a `String` cannot fail.
            let _ = writeln!(dot, "  n{index} [label=\"{index}: {name}\\n{read} B in, {written} B out\"];");
            for pred in info.after {
                let _ = writeln!(dot, "  n{pred} -> n{index};");
            }
        }
        dot.push_str("}\n");
        dot
    }
}
