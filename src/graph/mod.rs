//! `Graph`: recorded work, ready to be replayed.

#![forbid(unsafe_code)]

pub(crate) mod commands;
pub(crate) mod flow;
pub(crate) mod inspect;
#[cfg(test)]
mod oracle_tests;
pub(crate) mod plan;
pub(crate) mod reach;
pub(crate) mod ticket;
pub(crate) mod zeroing;

use std::sync::Arc;

use static_assertions::{assert_impl_all, assert_not_impl_any};

use crate::backend::Backend;
use crate::backend::host::Host;
use crate::callback;
use crate::capture::footprints::Footprints;
use crate::device::DeviceCore;
use crate::error::{Error, Result};
use crate::failures::Reports;
use crate::graph::commands::Commands;
use crate::graph::flow::Dag;
use crate::graph::ticket::{Ticket, TimedTicket};
use crate::memory::allocation::Allocation;
use crate::one_thread::OneThread;
use crate::order::{GraphOrder, Mark, enter_owners};
use crate::phase::CanReplay;
use crate::profile::Stamps;
use crate::submit;

/// Recorded work, ready to be replayed; made by [`Stream::end`](crate::Stream::end),
/// [`record`](crate::Stream::record) and [`capture`](crate::Stream::capture).
///
/// **What a replay does.** Every recorded operation, once: launches with the arguments of the recording, writes of the
/// bytes of the recording, zeroing, callbacks. It reads and writes the buffers of the recording, with what they hold
/// when it runs. Nodes that share no bytes may run side by side.
///
/// **What it holds.** The graph pins the buffers that it uses: they live as long as it does, also when every handle
/// is dropped. Buffers born in the recording that nobody holds share the bytes of one arena, which belongs to the graph.
///
/// **Its order.** A replay runs after everything that was enqueued before it on its own stream, after every conflicting
/// use of its buffers on other streams, after its own earlier replays, and after those of graphs with which it shares
/// bytes; and those that come later wait for it. A graph without nodes replays as a no-op.
///
/// Dropping a graph neither blocks nor frees anything that a replay in flight needs.
#[must_use = "a graph that is dropped was recorded for nothing"]
pub struct Graph<B: Backend = Host> {
    pub(crate) core: Held<B>,
    /// Replayed by one thread at a time: `Send`, and `&mut self` to replay.
    _one_thread: OneThread,
}

/// What a graph is made of.
pub struct GraphCore<B: Backend> {
    pub(crate) id: u64,
    pub(crate) device: Arc<DeviceCore<B>>,
    pub(crate) order: Arc<GraphOrder>,
    pub(crate) exec: Arc<B::Exec>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) list: Arc<Commands<B>>,
    pub(crate) dag: Dag,
    /// Every allocation that the graph uses, its arena last.
    pub(crate) members: Vec<Arc<Allocation<B>>>,
    /// Per member, how the graph uses it.
    pub(crate) footprints: Vec<Footprints>,
    pub(crate) arena: Option<Arc<Allocation<B>>>,
    pub(crate) arena_bytes: usize,
    pub(crate) unshared_bytes: usize,
}

impl<B: Backend> Graph<B> {
    pub(crate) fn new(core: GraphCore<B>) -> Self {
        Graph { core: Held(Some(Arc::new(core))), _one_thread: [] }
    }

    /// Enqueues one replay on `stream`, which may be any stream of the device that executes.
    ///
    /// Costs the same however many buffers the graph uses, and allocates nothing. The ticket need not be kept.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], [`Error::DeviceLost`], [`Error::InCallback`], [`Error::Evicted`] on a prepared stream that
    /// was, [`Error::WrongPhase`] on an [`AnyStream`](crate::AnyStream) that records: nothing was done. What the driver says
    /// when it refuses the replay: everything that the graph writes is tainted with it, until it is written again.
    pub fn replay<S: CanReplay<B>>(&mut self, stream: &mut S) -> Result<Ticket<B>> {
        let route = self.route(stream)?;
        let mark = submit::replay(route.core, &self.core, None)?;
        Ok(Ticket::new(&self.core, mark))
    }

    /// [`replay`](Graph::replay), and measures how long the device takes for it, which the ticket tells.
    ///
    /// The device notes the time when nothing is left that the replay must wait for, and when it is done. Behind other work
    /// that is the replay's time alone; on an idle device it includes how long the host took to enqueue the replay. To time is two operations more, and two small allocations; a replay that is not timed pays nothing.
    ///
    /// ```
    /// use dacapo::prelude::*;
    ///
    /// # fn main() -> dacapo::Result<()> {
    /// # let device = Device::host()?;
    /// # let mut stream = device.stream()?;
    /// # let double = Program::<(InOut<f32>,)>::new("double").host(|(x,), _| x.iter_mut().for_each(|x| *x *= 2.0));
    /// # let double = double.load(&device)?;
    /// let mut x = stream.alloc::<f32>(1000)?;
    /// let (mut graph, ()) = stream.record(|work| work.launch(&double, Grid::covering(1000), (&mut x,)))?;
    /// let first = graph.replay_timed(&mut stream)?;
    /// let second = graph.replay_timed(&mut stream)?;
    /// println!("{:?}, then {:?}", first.wait()?, second.wait()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for `replay`; a driver that refuses to note the time before the replay has refused the replay. One that refuses
    /// to do so after it lets it run, and the ticket says why there is no time.
    pub fn replay_timed<S: CanReplay<B>>(&mut self, stream: &mut S) -> Result<TimedTicket<B>> {
        let route = self.route(stream)?;
        let stamps = Stamps::default();
        let mark = submit::replay(route.core, &self.core, Some(&stamps))?;
        let done = Mark { slot: route.core.slot, seq: route.core.last };
        Ok(TimedTicket::new(Ticket::new(&self.core, mark), stamps, done))
    }

    /// The way of a replay to the queue of `stream`.
    fn route<'s, S: CanReplay<B>>(&self, stream: &'s mut S) -> Result<submit::Route<'s, B>> {
        let route = stream.route("replay")?;
        let (expected, found) = (route.core.device.id, self.core.device.id);
        if expected != found {
            return Err(Error::WrongDevice { operation: "replay", object: "graph", expected, found });
        }
        stream_executes(&route)?;
        Ok(route)
    }
}

/// Only a stream whose phase is known at run time can get here while it records.
fn stream_executes<B: Backend>(route: &submit::Route<'_, B>) -> Result<()> {
    if route.window.is_none() {
        return Ok(());
    }
    let (is, needs) = (
        crate::PhaseName::Recording,
        "a stream that executes: end the recording first, or `embed` the graph",
    );
    Err(Error::WrongPhase { operation: "replay", is, needs })
}

/// A hold on a graph, which may be let go of anywhere.
///
/// `None` only while it is being dropped, so that the last reference can move out of it.
pub(crate) struct Held<B: Backend>(Option<Arc<GraphCore<B>>>);

impl<B: Backend> Clone for Held<B> {
    fn clone(&self) -> Self {
        Held(self.0.clone())
    }
}

impl<B: Backend> std::ops::Deref for Held<B> {
    type Target = GraphCore<B>;

    fn deref(&self) -> &GraphCore<B> {
        match &self.0 {
            Some(core) => core,
            None => unreachable!("a hold is empty only while it is being dropped"),
        }
    }
}

impl<B: Backend> Drop for Held<B> {
    fn drop(&mut self) {
        // Inside a callback nothing may be asked of the driver, nor of the locks of whoever waits for the callback.
        if callback::inside()
            && let Some(core) = self.0.take()
        {
            let graveyard = core.device.memory.graveyard.clone();
            graveyard.defer(core);
        }
    }
}

impl<B: Backend> Drop for GraphCore<B> {
    /// Folds the last replay back into every member, before the members are let go: whoever uses them, or gets their
    /// bytes, waits for it.
    fn drop(&mut self) {
        self.device.memory.arenas.lock().retain(|arena| arena.graph != self.id);
        let order = &self.order;
        let _owners = enter_owners(&*self.device, |visit| {
            order.visit(visit);
            self.members.iter().for_each(|alloc| visit(&alloc.owner));
        });
        let last = order.state.lock().last;
        for (alloc, ranges) in self.members.iter().zip(&self.footprints) {
            let mut state = alloc.state.lock();
            alloc.leave(&mut state, order);
            if let Some(last) = last {
                ranges.iter().for_each(|(range, access)| state.uses.fold(range.clone(), *access, last));
            }
        }
        for link in order.links.take() {
            link.links.remove(order);
            last.into_iter().for_each(|last| link.note(last));
        }
    }
}

impl<B: Backend> std::fmt::Debug for Graph<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Graph")
            .field("nodes", &self.nodes())
            .field("edges", &self.edges())
            .field("arena_bytes", &self.arena_bytes())
            .finish_non_exhaustive()
    }
}

assert_impl_all!(Graph<Host>: Send);
assert_not_impl_any!(Graph<Host>: Sync, Clone);
