//! The operations of a sealed graph.

#![forbid(unsafe_code)]

use crate::backend::command::{ArgsRef, CommandRef};
use crate::backend::sealed::Driver;
use crate::backend::{Job, Region};
use crate::capture::recorder::Node;
use crate::graph::flow::Use;

/// The operations of a sealed graph, resolved, in the order of recording: for its backend, which runs them, and for who
/// embeds the graph or looks into it.
///
/// What they use lies in lists of all, so that a graph costs a few allocations, and not a few for each of its nodes.
pub struct Commands<B: Driver> {
    pub(crate) nodes: Vec<Node<B>>,
    /// In terms of the graph's members.
    pub(crate) uses: Vec<Use>,
    /// Per use, where that is in memory.
    pub(crate) regions: Vec<Region<B>>,
    pub(crate) scalars: Vec<u8>,
}

impl<B: Driver> Commands<B> {
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<CommandRef<'_, B>> {
        self.nodes.get(index).map(|node| self.command(node))
    }

    /// All of them, in the order of recording.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = CommandRef<'_, B>> + Clone {
        self.nodes.iter().map(|node| self.command(node))
    }

    /// What each of them does.
    #[cfg_attr(
        not(any(feature = "cuda", feature = "wgpu")),
        allow(dead_code, reason = "the host looks at each as it runs")
    )]
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &Job<B>> {
        self.nodes.iter().map(|node| &node.job)
    }

    fn command<'c>(&'c self, node: &'c Node<B>) -> CommandRef<'c, B> {
        let args = ArgsRef {
            regions: self.regions.get(node.buffers()).unwrap_or_default(),
            scalars: self.scalars.get(node.scalars()).unwrap_or_default(),
        };
        CommandRef { job: &node.job, args }
    }
}
