//! Which node happens before which, answered without a table of all pairs.
//!
//! Nodes arrive in record order, each with the nodes it must follow. A node that follows exactly one other hangs
//! below it in a *tree*, and within a tree the question is whether one node is an ancestor of the other. A node
//! that follows several is a *join*: the root of a tree of its own, with a sparse *clock* of everything outside it.
//!
//! A clock names nodes by *chain*: a sequence of nodes each of which happens before the next, so that the last
//! known node of a chain stands for all earlier ones. A node takes a place in a chain only when something
//! follows it; until then no clock can need it, and dead ends use up no chain. Below its *floor* a clock is full:
//! every node with a lower index happens before the join, and no entry is spent on it.
//!
//! **Exactness.** Answers are exact until the clocks together hold 8,388,608 entries (64 MiB). A clock that would
//! exceed that is cut to its 32 newest entries, and whatever happens after such a join may know less of what came
//! before it; so may what happens after 134,217,728 entries were merged, which bounds the time. "Happens before"
//! is never claimed wrongly: what is lost is sharing of memory and the dropping of redundant edges. A barrier
//! knows everything before it at no cost, so that what it orders stays exact.

#![forbid(unsafe_code)]
// reason: node, chain and join numbers are handed out by this module alone, by pushing to the very lists that
// they index, and no list ever shrinks.
#![allow(clippy::indexing_slicing)]

use std::cmp::Reverse;
use std::ops::Range;

use super::flow::Dag;

/// What the clocks of one graph may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// How many entries may be stored, over all joins, before clocks are cut.
    pub(crate) stored: usize,
    /// How many entries may be merged, over all joins, before long clocks are left out.
    pub(crate) merged: usize,
    /// How many entries a clock is cut to, and the longest that is always merged.
    pub(crate) cut: usize,
}

const BOUNDS: Bounds = Bounds { stored: 1 << 23, merged: 1 << 27, cut: 32 };

const NONE: u32 = u32::MAX;

/// The order of the nodes of one graph.
#[derive(Default)]
pub(crate) struct Reach {
    nodes: Vec<Node>,
    joins: Vec<Join>,
    /// The clocks of all joins, end to end.
    clocks: Vec<Entry>,
}

impl Reach {
    /// Whether `a` has finished before `b` starts, in every schedule. Never true of a node and itself.
    pub(crate) fn happens_before(&self, a: u32, b: u32) -> bool {
        if a >= b || b as usize >= self.nodes.len() || self.is_sink(a) {
            return false;
        }
        let (above, below) = (self.nodes[a as usize], self.nodes[b as usize]);
        if above.chain == below.chain {
            return true;
        }
        if below.root <= a {
            return self.is_ancestor(a, b);
        }
        self.join(below.root).is_some_and(|join| {
            let clock = &self.clocks[join.clock.clone()];
            let found = || clock.binary_search_by_key(&above.chain, |entry| entry.chain);
            a < join.floor || found().is_ok_and(|at| clock[at].node >= a)
        })
    }

    /// Whether nothing follows `n`.
    pub(crate) fn is_sink(&self, n: u32) -> bool {
        self.nodes.get(n as usize).is_none_or(|node| node.chain == NONE)
    }

    /// Whether `a` is `b` or above it in the tree of `b`, whose root must not come after `a`.
    ///
    /// Indices fall on the way up, so jumps that do not pass `a` lead to it in O(log n) if it is there at all.
    fn is_ancestor(&self, a: u32, b: u32) -> bool {
        let mut at = b;
        while at > a {
            let node = self.nodes[at as usize];
            at = if node.jump >= a { node.jump } else { node.parent };
        }
        at == a
    }

    /// What is known about the past of a root; `None` if it has no past.
    fn join(&self, root: u32) -> Option<&Join> {
        self.joins.get(self.nodes[root as usize].join as usize)
    }
}

#[derive(Clone, Copy)]
struct Node {
    /// The node above in the tree; a root is its own parent.
    parent: u32,
    /// An ancestor some way up, chosen by depth so that O(log n) jumps reach any ancestor.
    jump: u32,
    depth: u32,
    root: u32,
    /// Index in `Reach::joins`; `NONE` unless this is a join.
    join: u32,
    /// `NONE` while nothing follows the node.
    chain: u32,
    /// The highest ancestor that the tree path reaches without leaving the chain.
    top: u32,
}

struct Join {
    /// Every node with a lower index happens before the join.
    floor: u32,
    /// What happens before the join and is not below its floor: entries of `Reach::clocks`, sorted by chain.
    clock: Range<usize>,
}

/// `node`, and all of its chain before it, are known.
#[derive(Clone, Copy)]
struct Entry {
    chain: u32,
    node: u32,
}

/// Builds the edges of a graph and their [`Reach`] node by node, in record order.
///
/// The order is worked out when somebody asks for it, or when a node follows several: a graph of chains is recorded without.
pub(crate) struct Builder {
    dag: Dag,
    /// Of the first nodes of `dag`; each of the others follows one node or none.
    reach: Reach,
    /// The last node of each chain.
    tails: Vec<u32>,
    /// Per join: tails known to happen before it, whose chains its descendants may continue.
    spares: Vec<Vec<Entry>>,
    merged: Merged,
    /// What is left of the usual bounds.
    left: Bounds,
}

/// The union of pasts that is being computed for one node.
#[derive(Default)]
struct Merged {
    /// Per chain: one more than the last known node, 0 for none.
    best: Vec<u32>,
    touched: Vec<u32>,
    floor: u32,
}

impl Builder {
    pub(crate) fn new(nodes: usize) -> Self {
        Self::bounded(nodes, BOUNDS)
    }

    /// A builder with other bounds than the usual ones.
    pub(crate) fn bounded(nodes: usize, left: Bounds) -> Self {
        Self {
            dag: Dag::with_capacity(nodes),
            reach: Reach::default(),
            tails: Vec::new(),
            spares: Vec::new(),
            merged: Merged::default(),
            left,
        }
    }

    /// The order of the nodes so far, and their edges.
    pub(crate) fn order(&mut self) -> (&Reach, &Dag) {
        self.catch_up();
        (&self.reach, &self.dag)
    }

    /// The edges of all nodes.
    pub(crate) fn finish(self) -> Dag {
        self.dag
    }

    /// Works out the order of the nodes that were only noted.
    fn catch_up(&mut self) {
        let nodes = self.reach.nodes.len()..self.dag.len();
        self.reach.nodes.reserve(nodes.len());
        for n in nodes {
            let parent = self.dag.preds(n as u32).first().copied();
            self.push_single(parent);
        }
    }

    /// Adds the next node, which must follow `preds` (ascending, distinct), but for those that already happen before another
    /// one of them: they are taken out.
    #[inline]
    pub(crate) fn push(&mut self, preds: &mut Vec<u32>) {
        if preds.len() > 1 {
            self.order_follower(preds);
        }
        self.dag.push(preds);
    }

    /// Adds a node that may follow several to the order.
    fn order_follower(&mut self, preds: &mut Vec<u32>) {
        self.catch_up();
        if let Some(&last) = preds.last() {
            preds.retain(|p| !self.reach.happens_before(*p, last));
        }
        if preds.len() < 2 {
            return self.push_single(preds.first().copied());
        }
        self.merge(preds);
        if preds.len() < 2 {
            self.push_single(preds.first().copied());
        } else {
            self.push_join(preds);
        }
        self.merged.clear();
    }

    /// Adds the next node, which follows all others. Its predecessors are the nodes from `since` on that nothing followed,
    /// `since` being the barrier before this one, or 0.
    pub(crate) fn push_barrier(&mut self, since: u32) {
        self.catch_up();
        let n = self.reach.nodes.len() as u32;
        let preds: Vec<u32> = (since..n).filter(|p| self.reach.is_sink(*p)).collect();
        for p in &preds {
            self.settle(*p);
        }
        let here = self.reach.clocks.len();
        self.push_root(&preds, Join { floor: n, clock: here..here });
        self.dag.push(&preds);
    }

    /// Adds a node below `parent`, or a source.
    fn push_single(&mut self, parent: Option<u32>) {
        let n = self.reach.nodes.len() as u32;
        let root = Node { parent: n, jump: n, depth: 0, root: n, join: NONE, chain: NONE, top: n };
        let Some(parent) = parent else { return self.reach.nodes.push(root) };
        self.settle(parent);
        let up = self.reach.nodes[parent as usize];
        let mid = self.reach.nodes[up.jump as usize];
        let far = self.reach.nodes[mid.jump as usize];
        let jump = if up.depth - mid.depth == mid.depth - far.depth { mid.jump } else { parent };
        self.reach.nodes.push(Node { parent, jump, depth: up.depth + 1, root: up.root, ..root });
    }

    fn push_join(&mut self, preds: &[u32]) {
        for p in preds {
            self.settle(*p);
            self.merged.raise(self.reach.nodes[*p as usize].chain, *p);
        }
        self.merged.lift_floor(&self.reach.nodes);
        let floor = self.merged.floor;
        let start = self.reach.clocks.len();
        self.reach.clocks.extend(self.merged.entries().filter(|entry| entry.node >= floor));
        let clock = &mut self.reach.clocks[start..];
        let mut len = clock.len();
        if len > self.left.stored && len > self.left.cut {
            clock.select_nth_unstable_by_key(self.left.cut, |entry| Reverse(entry.node));
            len = self.left.cut;
        }
        clock[..len].sort_unstable_by_key(|entry| entry.chain);
        self.reach.clocks.truncate(start + len);
        self.left.stored = self.left.stored.saturating_sub(len);
        self.push_root(preds, Join { floor, clock: start..start + len });
    }

    /// Adds the root of a new tree, and notes which chains its descendants may continue.
    fn push_root(&mut self, preds: &[u32], join: Join) {
        let mut spares = match preds.last().and_then(|p| self.spares_of(*p)) {
            Some(left) => std::mem::take(left),
            None => Vec::new(),
        };
        spares.extend(preds.iter().map(|p| Entry { chain: self.reach.nodes[*p as usize].chain, node: *p }));
        self.push_single(None);
        if let Some(node) = self.reach.nodes.last_mut() {
            node.join = self.reach.joins.len() as u32;
        }
        self.reach.joins.push(join);
        self.spares.push(spares);
    }

    fn spares_of(&mut self, n: u32) -> Option<&mut Vec<Entry>> {
        let root = self.reach.nodes[n as usize].root;
        self.spares.get_mut(self.reach.nodes[root as usize].join as usize)
    }

    /// Gives `n` a place in a chain, now that something follows it.
    fn settle(&mut self, n: u32) {
        let node = self.reach.nodes[n as usize];
        if node.chain != NONE {
            return;
        }
        let up = self.reach.nodes[node.parent as usize];
        let follows_parent = node.parent != n && self.tails[up.chain as usize] == node.parent;
        let chain = if follows_parent { up.chain } else { self.free_chain(n) };
        self.tails[chain as usize] = n;
        self.reach.nodes[n as usize].chain = chain;
        self.reach.nodes[n as usize].top = if follows_parent { up.top } else { n };
    }

    /// A chain that ends before `n`, or a new one.
    fn free_chain(&mut self, n: u32) -> u32 {
        while let Some(spare) = self.spares_of(n).and_then(Vec::pop) {
            // Somebody else may have continued the chain since it was noted.
            if self.tails[spare.chain as usize] == spare.node {
                return spare.chain;
            }
        }
        self.tails.push(n);
        self.merged.best.push(0);
        (self.tails.len() - 1) as u32
    }

    /// Computes the union of the pasts of `preds`, and takes out of `preds` what is in it.
    ///
    /// Latest first: whatever happens before a node has a lower index, so that one pass decides.
    fn merge(&mut self, preds: &mut Vec<u32>) {
        for at in (0..preds.len()).rev() {
            if self.merged.covers(&self.reach.nodes, preds[at]) {
                preds[at] = NONE;
            } else {
                self.cover(preds[at]);
            }
        }
        preds.retain(|p| *p != NONE);
    }

    /// Adds `n` and its past to the union, chain by chain up to the root, then the root's clock. What the union
    /// covers already, it covers with its past.
    fn cover(&mut self, n: u32) {
        let nodes = &self.reach.nodes;
        let mut at = n;
        while !self.merged.covers(nodes, at) {
            let node = nodes[at as usize];
            let root_is_new = !self.merged.covers(nodes, node.root);
            // A sink has no chain yet; it is added when it gets one.
            if node.chain != NONE {
                self.merged.raise(node.chain, at);
            }
            if node.top == node.root {
                if root_is_new {
                    self.absorb(node.root);
                }
                return;
            }
            at = nodes[node.top as usize].parent;
        }
    }

    fn absorb(&mut self, root: u32) {
        let Some(join) = self.reach.join(root) else { return };
        self.merged.floor = self.merged.floor.max(join.floor);
        let clock = &self.reach.clocks[join.clock.clone()];
        if clock.len() > self.left.merged && clock.len() > self.left.cut {
            return;
        }
        self.left.merged = self.left.merged.saturating_sub(clock.len());
        for entry in clock {
            self.merged.raise(entry.chain, entry.node);
        }
    }
}

impl Merged {
    fn covers(&self, nodes: &[Node], n: u32) -> bool {
        let chain = nodes[n as usize].chain;
        n < self.floor || (chain != NONE && self.best[chain as usize] > n)
    }

    fn raise(&mut self, chain: u32, node: u32) {
        let best = &mut self.best[chain as usize];
        if *best == 0 {
            self.touched.push(chain);
        }
        *best = (*best).max(node + 1);
    }

    /// Moves the floor up over nodes that are covered. Bounded by the size of the clock, which pays for it; a
    /// floor that stays too low costs entries, not answers.
    fn lift_floor(&mut self, nodes: &[Node]) {
        let steps = 64 + 4 * self.touched.len();
        for _ in 0..steps {
            if self.floor as usize >= nodes.len() || !self.covers(nodes, self.floor) {
                return;
            }
            self.floor += 1;
        }
    }

    fn entries(&self) -> impl Iterator<Item = Entry> {
        self.touched.iter().map(|chain| Entry { chain: *chain, node: self.best[*chain as usize] - 1 })
    }

    fn clear(&mut self) {
        for chain in self.touched.drain(..) {
            self.best[chain as usize] = 0;
        }
        self.floor = 0;
    }
}
