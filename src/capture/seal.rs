//! From a recording to a graph.

#![forbid(unsafe_code)]
#![allow(clippy::indexing_slicing, reason = "uses name allocations by the index that the recorder gave them")]

use std::ops::Range;
use std::sync::Arc;

use crate::access::Access;
use crate::backend::command::Scalars;
use crate::backend::{ArgBlock, Backend, Command, Contents, Fleeting, Region};
use crate::callback;
use crate::capture::options::{CaptureOptions, Order};
use crate::capture::recorder::{Kind, Node, Recorder, summary};
use crate::capture::window::{WindowGuard, retire};
use crate::device::{DeviceCore, Zeroing};
use crate::error::{Error, Result};
use crate::fresh;
use crate::graph::flow::{self, Dag, Footprint, Use};
use crate::graph::plan::{Plan, Request, plan};
use crate::graph::{Graph, GraphCore, NodeList, reach::Reach, zeroing};
use crate::memory::allocation::Allocation;
use crate::memory::drops;
use crate::memory::pool::release;
use crate::memory::report::Arena;
use crate::memory::reserve::reserve;
use crate::memory::{AllocationMode, Reserved};
use crate::order::{GraphOrder, Marks, Membership, enter_all};
use crate::stream::StreamCore;
use crate::submit::root_of;
use crate::upload;

/// Ends the recording of `guard` and seals it. The window is closed whatever comes of it.
pub(crate) fn end<B: Backend>(core: &mut StreamCore<B>, guard: WindowGuard<B>) -> Result<Graph<B>> {
    callback::refuse("end")?;
    if guard.window.gate.try_seal().is_err() {
        // Whoever evicted the window holds this until the error says who it was.
        drop(guard.window.state.lock());
        return Err(guard.closed_error());
    }
    let Some(mut recorder) = guard.take() else { return Err(guard.closed_error()) };
    let device = core.device.clone();
    let options = std::mem::take(&mut *guard.window.options.lock());
    let ended = device.backend.end(core.id).map_err(|fault| device.poison.absorb(fault));
    let outcome = match recorder.doom.take() {
        // The first failure wins, whatever the driver says of the end.
        Some(doom) => Err((*doom).clone()),
        None => ended
            .and_then(|()| device.poison.check())
            .and_then(|()| upload::constants(core, &mut recorder))
            .and_then(|()| Sealing::new(core, &mut recorder, &options).seal()),
    };
    match &outcome {
        Ok(_) => recorder.clear(),
        Err(error) => recorder.kill(&root_of(error)),
    }
    core.spare = recorder;
    drops::release(&device, core.slot);
    guard.window.gate.close();
    retire(&device, &guard.window);
    outcome
}

/// One recording on its way to a graph.
struct Sealing<'r, B: Backend> {
    core: &'r StreamCore<B>,
    recorder: &'r mut Recorder<B>,
    options: &'r CaptureOptions<B>,
    /// Per allocation: what becomes of it.
    fates: Vec<Fate>,
}

/// What becomes of an allocation that the recording touches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It was there before, and is pinned by the graph.
    Outside,
    /// It was born here and the user still holds it (or it has no bytes): an allocation of its own.
    Survives,
    /// It was born here and nobody holds it, but its address was given away: an allocation of its own, of the graph's.
    Placed,
    /// It was born here and nobody holds it: a range of the arena.
    Temporary,
}

impl<'r, B: Backend> Sealing<'r, B> {
    fn new(core: &'r StreamCore<B>, recorder: &'r mut Recorder<B>, options: &'r CaptureOptions<B>) -> Self {
        let fate = |touched: &crate::capture::recorder::Touched<B>| match touched.born {
            false => Fate::Outside,
            // The recorder holds one reference; any other is the user's. What has no bytes lies in no arena.
            true if touched.alloc.bytes == 0 || Arc::strong_count(&touched.alloc) > 1 => Fate::Survives,
            true => Fate::Temporary,
        };
        let mut fates: Vec<Fate> = recorder.allocs.iter().map(fate).collect();
        for at in recorder.placed() {
            let fate = &mut fates[at as usize];
            if *fate == Fate::Temporary {
                *fate = Fate::Placed;
            }
        }
        Sealing { core, recorder, options, fates }
    }

    fn seal(mut self) -> Result<Graph<B>> {
        let kept = self.kept();
        let (dag, reach) = self.edges(&kept);
        let (plan, temporaries) = self.plan(&kept, &dag, &reach);
        let arena = self.arena(&plan)?;
        let offsets: Vec<Option<usize>> = self.offsets(&plan, &temporaries);
        let mut survivors = Survivors { device: &self.core.device, reserved: Vec::new() };
        for (at, early) in self.recorder.take_early() {
            let alloc = &self.recorder.allocs[at as usize].alloc;
            survivors.reserved.extend(early.take().map(|reserved| (alloc.clone(), reserved)));
        }
        let contents = self.place(arena.as_ref(), &offsets, &mut survivors)?;
        let (members, uses) = self.members(arena.as_ref(), &offsets);
        let commands =
            kept.iter().map(|n| self.command(&self.recorder.nodes[*n as usize], &contents)).collect();
        let list = self.list(&kept, &uses);
        let device = &self.core.device;
        let exec = device
            .backend
            .seal(commands, &dag, self.fleeting(&contents))
            .map_err(|fault| device.poison.absorb(fault))?;
        if device.zeroing == Zeroing::Always {
            // Before the first replay they are unwritten, and a kernel that leaves its output so would show old bytes.
            survivors.zero(self.core)?;
        }
        let footprints = footprints(&list, members.len());
        let order = self.join(&members, &footprints, survivors);
        let id = device.memory.next_graph();
        let bytes = to_usize(plan.bytes);
        if let Some(arena) = &arena {
            device.memory.arenas.lock().push(Arena { graph: id, bytes, memory: arena.id() });
        }
        Ok(Graph::new(GraphCore {
            id,
            device: device.clone(),
            order,
            exec: Arc::new(exec),
            reports: Arc::default(),
            list,
            dag,
            members,
            footprints,
            arena,
            arena_bytes: bytes,
            unshared_bytes: to_usize(plan.unshared),
        }))
    }

    fn footprint(&self, node: &Node<B>) -> Footprint<'_> {
        let uses = &self.recorder.uses[node.uses.clone()];
        Footprint { uses, barrier: node.kind == Kind::Barrier }
    }

    /// The nodes that stay: all but zeroings that nobody could tell from none.
    fn kept(&self) -> Vec<u32> {
        let recorder = &*self.recorder;
        let nodes = &recorder.nodes;
        let zeroes = |n: u32| {
            let node = nodes.get(n as usize).filter(|node| node.kind == Kind::Zeroing)?;
            recorder.uses.get(node.uses.start).map(|used| used.alloc)
        };
        let needed = zeroing::needed(
            nodes.iter().map(|node| self.footprint(node)),
            zeroes,
            |alloc| self.fates[alloc as usize] == Fate::Survives,
            |alloc| recorder.allocs[alloc as usize].alloc.bytes as u64,
            recorder.allocs.len(),
        );
        (0u32..).zip(needed).filter(|(_, needed)| *needed).map(|(n, _)| n).collect()
    }

    fn edges(&self, kept: &[u32]) -> (Dag, Reach) {
        match self.options.order {
            Order::Sequential => flow::sequential(kept.len()),
            Order::DataFlow => {
                let nodes = kept.iter().map(|n| self.footprint(&self.recorder.nodes[*n as usize]));
                flow::data_flow(nodes, self.recorder.allocs.len())
            }
        }
    }

    /// The plan for the temporaries, and which allocation each of its requests is.
    fn plan(&self, kept: &[u32], dag: &Dag, reach: &Reach) -> (Plan, Vec<usize>) {
        let temporaries: Vec<usize> =
            (0..self.fates.len()).filter(|alloc| self.fates[*alloc] == Fate::Temporary).collect();
        let mut request_of = vec![usize::MAX; self.fates.len()];
        let mut requests: Vec<Request> = Vec::with_capacity(temporaries.len());
        for (request, alloc) in temporaries.iter().enumerate() {
            request_of[*alloc] = request;
            let bytes = self.recorder.allocs[*alloc].alloc.bytes as u64;
            requests.push(Request { bytes, uses: Vec::new() });
        }
        for (at, n) in (0u32..).zip(kept) {
            for used in &self.recorder.uses[self.recorder.nodes[*n as usize].uses.clone()] {
                if let Some(request) = requests.get_mut(request_of[used.alloc as usize])
                    && request.uses.last() != Some(&at)
                {
                    request.uses.push(at);
                }
            }
        }
        let align = self.core.device.limits.alignment as u64;
        (plan(&requests, reach, dag, align), temporaries)
    }

    /// The memory for the plan: the graph's own, or that of the graph to share with.
    fn arena(&self, plan: &Plan) -> Result<Option<Arc<Allocation<B>>>> {
        let needed = to_usize(plan.bytes);
        if let Some(limit) = self.options.arena_limit.filter(|limit| needed > *limit) {
            return Err(Error::ArenaLimit { needed, limit });
        }
        if needed == 0 {
            return Ok(None);
        }
        let shared = self.options.share_arena.as_ref().and_then(|graph| graph.arena.as_ref());
        // An arena that an embedded child brings along is in use by its nodes, which would not be told from ours.
        let embedded = |arena: &Arc<Allocation<B>>| {
            self.recorder.allocs.iter().any(|touched| Arc::ptr_eq(&touched.alloc, arena))
        };
        if let Some(arena) = shared.filter(|arena| arena.bytes >= needed && !embedded(arena)) {
            return Ok(Some(arena.clone()));
        }
        let (device, slot) = (&self.core.device, self.core.slot);
        let reserved = reserve(device, slot, needed, AllocationMode::Dedicated)?;
        Ok(Some(Allocation::arena(device, slot, needed, reserved)))
    }

    /// Per allocation, where in the arena it lies.
    fn offsets(&self, plan: &Plan, temporaries: &[usize]) -> Vec<Option<usize>> {
        let mut offsets = vec![None; self.fates.len()];
        for (alloc, offset) in temporaries.iter().zip(&plan.offsets) {
            offsets[*alloc] = offset.map(to_usize);
        }
        offsets
    }

    /// Gives every allocation its bytes; `None` for one without.
    fn place(
        &self,
        arena: Option<&Arc<Allocation<B>>>,
        offsets: &[Option<usize>],
        survivors: &mut Survivors<'_, B>,
    ) -> Result<Vec<Option<Arc<Contents<B>>>>> {
        let (device, slot) = (&self.core.device, self.core.slot);
        let arena =
            arena.map(|arena| arena.state.lock().resolve("end").map(|home| home.cloned())).transpose()?;
        let arena = arena.flatten();
        let unwritten = Arc::new(Error::NotReplayed);
        let mut contents = Vec::with_capacity(self.fates.len());
        for (at, touched) in self.recorder.allocs.iter().enumerate() {
            let alloc = &touched.alloc;
            if self.fates[at] == Fate::Temporary {
                contents.push(offsets[at].zip(arena.as_ref()).map(|(offset, arena)| {
                    let (page, offset) = (arena.page.clone(), arena.offset + offset);
                    Contents::new(page, offset)
                }));
                continue;
            }
            if matches!(self.fates[at], Fate::Survives | Fate::Placed) && alloc.bytes > 0 {
                let place = match survivors.find(alloc) {
                    Some(place) => place,
                    None => {
                        let reserved = reserve(device, slot, alloc.bytes, self.core.mode)?;
                        survivors.add(alloc, reserved)
                    }
                };
                place.taint.set(0..alloc.bytes, unwritten.clone());
                contents.push(Some(place));
                continue;
            }
            contents.push(alloc.state.lock().resolve("end")?.cloned());
        }
        Ok(contents)
    }

    /// What holds nothing from one replay to the next: what nobody holds, and the same of embedded children.
    fn fleeting(&self, contents: &[Option<Arc<Contents<B>>>]) -> Vec<Fleeting<B>> {
        let allocs = self.fates.iter().zip(&self.recorder.allocs).zip(contents);
        let fleeting = allocs.filter(|((fate, touched), _)| {
            let nobodys = matches!(fate, Fate::Temporary | Fate::Placed);
            nobodys || touched.alloc.is_arena || touched.alloc.state.lock().is_lone
        });
        fleeting
            .filter_map(|((_, touched), contents)| {
                let contents = contents.clone()?;
                Some(Fleeting { contents, bytes: touched.alloc.bytes })
            })
            .collect()
    }

    /// The allocations that the graph belongs to, and every use in terms of them.
    fn members(
        &self,
        arena: Option<&Arc<Allocation<B>>>,
        offsets: &[Option<usize>],
    ) -> (Vec<Arc<Allocation<B>>>, Vec<Use>) {
        let mut members = Vec::new();
        let mut index = vec![0u32; self.fates.len()];
        for (at, touched) in self.recorder.allocs.iter().enumerate() {
            if self.fates[at] != Fate::Temporary {
                index[at] = members.len() as u32;
                members.push(touched.alloc.clone());
            }
        }
        let arena_index = members.len() as u32;
        members.extend(arena.cloned());
        let uses = self.recorder.uses.iter().map(|used| {
            let at = used.alloc as usize;
            if self.fates[at] != Fate::Temporary {
                return Use { alloc: index[at], ..*used };
            }
            let by = offsets[at].unwrap_or(0) as u64;
            // Without an arena no temporary is used by a node that stays, so that the number says nothing.
            let alloc = if arena.is_some() { arena_index } else { 0 };
            Use { alloc, start: used.start + by, end: used.end + by, access: used.access }
        });
        let uses = uses.collect();
        (members, uses)
    }

    /// The kept nodes, taken from the recorder, as a list of their own.
    fn list(&mut self, kept: &[u32], uses: &[Use]) -> NodeList<B> {
        let mut list = NodeList { nodes: Vec::with_capacity(kept.len()), ..NodeList::default() };
        let mut kept = kept.iter().peekable();
        for (n, node) in (0u32..).zip(self.recorder.nodes.drain(..)) {
            if kept.next_if(|kept| **kept == n).is_none() {
                continue;
            }
            let (first_use, first_scalar) = (list.uses.len(), list.scalars.len());
            list.uses.extend_from_slice(&uses[node.uses.clone()]);
            list.scalars.extend_from_slice(&self.recorder.scalars[node.scalars.clone()]);
            list.nodes.push(Node {
                job: node.job,
                uses: first_use..list.uses.len(),
                scalars: first_scalar..list.scalars.len(),
                // Embedded into a graph that follows the data, the nodes must still follow each other.
                kind: if self.options.order == Order::Sequential { Kind::Barrier } else { node.kind },
            });
        }
        list
    }

    fn command(&self, node: &Node<B>, contents: &[Option<Arc<Contents<B>>>]) -> Command<B> {
        let uses = &self.recorder.uses[node.uses.clone()];
        // As when an operation is enqueued: a backend never sees a token.
        let uses = uses.iter().filter(|used| !self.recorder.allocs[used.alloc as usize].alloc.is_token);
        let regions = uses.map(|used| Region {
            contents: contents[used.alloc as usize].clone().filter(|_| used.start < used.end),
            start: used.start as usize,
            end: used.end as usize,
            access: used.access,
        });
        let scalars = Scalars::from_slice(&self.recorder.scalars[node.scalars.clone()]);
        Command { job: node.job.clone(), args: ArgBlock { regions: regions.collect(), scalars } }
    }

    /// Makes the graph a member of everything that it uses, and orders it after everything that used it before.
    ///
    /// Only here, under every lock and with nothing left that could fail, do survivors get their bytes: nobody can have
    /// used them before.
    fn join(
        &self,
        members: &[Arc<Allocation<B>>],
        footprints: &[Footprints],
        mut survivors: Survivors<'_, B>,
    ) -> Arc<GraphOrder> {
        let _everything = enter_all(&self.core.device);
        survivors.reserved.drain(..).for_each(|(alloc, reserved)| alloc.place(reserved));
        let placed = self.fates.iter().zip(&self.recorder.allocs).filter(|(fate, _)| **fate == Fate::Placed);
        placed.for_each(|(_, touched)| touched.alloc.state.lock().is_lone = true);
        let order = GraphOrder::new(self.core.slot, Marks::default());
        for (alloc, ranges) in members.iter().zip(footprints) {
            let mut state = alloc.state.lock();
            let membership = Membership { graph: order.clone(), ranges: ranges.iter().cloned().collect() };
            let mut noted = order.state.lock();
            for (range, access) in ranges {
                state.uses.collect(range, *access, &mut noted.noted);
            }
            drop(noted);
            for other in state.members().filter(|other| other.conflicts_with(&membership)) {
                link(&order, &other.graph);
            }
            alloc.join(&mut state, membership);
        }
        order
    }
}

/// Bytes reserved for buffers that outlive the recording, given back if it never becomes a graph.
struct Survivors<'d, B: Backend> {
    device: &'d DeviceCore<B>,
    reserved: Vec<(Arc<Allocation<B>>, Reserved<B>)>,
}

impl<B: Backend> Survivors<'_, B> {
    /// Where a buffer is that has its bytes already.
    fn find(&self, alloc: &Arc<Allocation<B>>) -> Option<Arc<Contents<B>>> {
        let known = self.reserved.iter().find(|(known, _)| Arc::ptr_eq(known, alloc));
        known.map(|(_, reserved)| reserved.contents.clone())
    }

    fn add(&mut self, alloc: &Arc<Allocation<B>>, reserved: Reserved<B>) -> Arc<Contents<B>> {
        let contents = reserved.contents.clone();
        self.reserved.push((alloc.clone(), reserved));
        contents
    }

    fn zero(&mut self, core: &StreamCore<B>) -> Result<()> {
        self.reserved.iter_mut().try_for_each(|(alloc, reserved)| fresh::zero(core, alloc.bytes, reserved))
    }
}

impl<B: Backend> Drop for Survivors<'_, B> {
    fn drop(&mut self) {
        for (_, Reserved { contents, lease, history }) in self.reserved.drain(..) {
            release(self.device, contents, lease, history);
        }
    }
}

/// How a graph uses one of its members.
pub(crate) type Footprints = Vec<(Range<usize>, Access)>;

fn footprints<B: Backend>(list: &NodeList<B>, members: usize) -> Vec<Footprints> {
    let mut uses: Vec<Footprints> = vec![Vec::new(); members];
    for used in list.uses.iter().filter(|used| used.start < used.end) {
        uses[used.alloc as usize].push((used.start as usize..used.end as usize, used.access));
    }
    uses.into_iter().map(|uses| summary(uses.into_iter())).collect()
}

/// Orders the replays of two graphs against each other.
fn link(one: &Arc<GraphOrder>, other: &Arc<GraphOrder>) {
    if Arc::ptr_eq(one, other) {
        return;
    }
    for (from, to) in [(one, other), (other, one)] {
        from.links.add(to);
    }
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
