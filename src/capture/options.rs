//! How a capture is to be sealed.

#![forbid(unsafe_code)]

use crate::backend::Backend;
use crate::backend::host::Host;
use crate::graph::{Graph, Held};

/// How a capture is to be sealed.
///
/// ```
/// use dacapo::{CaptureOptions, Host, Order};
/// let options = CaptureOptions::<Host>::new().order(Order::Sequential).arena_limit(64 << 20);
/// ```
pub struct CaptureOptions<B: Backend = Host> {
    pub(crate) order: Order,
    pub(crate) arena_limit: Option<usize>,
    pub(crate) share_arena: Option<Held<B>>,
}

/// Which order a graph keeps among its nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// That of the data: nodes that share no bytes, or only read them, may run side by side.
    #[default]
    DataFlow,
    /// That of the recording: for kernels that share state which their arguments do not show. Embedded into a graph of
    /// any order, the nodes keep it, and are barriers there.
    Sequential,
}

impl<B: Backend> Default for CaptureOptions<B> {
    fn default() -> Self {
        CaptureOptions { order: Order::default(), arena_limit: None, share_arena: None }
    }
}

impl<B: Backend> Clone for CaptureOptions<B> {
    fn clone(&self) -> Self {
        CaptureOptions {
            order: self.order,
            arena_limit: self.arena_limit,
            share_arena: self.share_arena.clone(),
        }
    }
}

impl<B: Backend> CaptureOptions<B> {
    /// The usual options: the order of the data, an arena of its own without a limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which order the graph keeps.
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// The most bytes that the graph's arena may take; `end` is refused with `ArenaLimit` beyond it.
    pub fn arena_limit(mut self, bytes: usize) -> Self {
        self.arena_limit = Some(bytes);
        self
    }

    /// Lets the new graph use the arena of `graph`, if it is large enough; else the new one takes its own, and so it
    /// does if it embeds `graph` or another one with that arena.
    ///
    /// Replays of graphs that share an arena run one after the other.
    pub fn share_arena(mut self, graph: &Graph<B>) -> Self {
        self.share_arena = Some(graph.core.clone());
        self
    }
}

impl<B: Backend> std::fmt::Debug for CaptureOptions<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CaptureOptions")
            .field("order", &self.order)
            .field("arena_limit", &self.arena_limit)
            .field("share_arena", &self.share_arena.is_some())
            .finish()
    }
}
