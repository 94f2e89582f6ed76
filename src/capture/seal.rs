//! From a recording to a graph.

#![forbid(unsafe_code)]
#![allow(clippy::indexing_slicing, reason = "uses name allocations by the index that the recorder gave them")]

use std::sync::Arc;

use smallvec::SmallVec;

use crate::backend::{Backend, Contents, Fleeting, Region};
use crate::callback;
use crate::capture::footprints::{Footprints, footprints};
use crate::capture::options::{CaptureOptions, Order};
use crate::capture::recorder::{Kind, Recorder, Touched};
use crate::capture::window::{WindowGuard, retire};
use crate::device::{DeviceCore, Zeroing};
use crate::error::{Error, Result};
use crate::fresh;
use crate::graph::flow::{self, Footprint, Use};
use crate::graph::plan::{Plan, Request, plan};
use crate::graph::{Graph, GraphCore, commands::Commands, reach, zeroing};
use crate::memory::allocation::Allocation;
use crate::memory::drops;
use crate::memory::pool::release;
use crate::memory::report::Arena;
use crate::memory::reserve::reserve;
use crate::memory::{AllocationMode, Reserved};
use crate::order::{GraphOrder, Marks, Membership, enter};
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
    core.spare = Some(recorder);
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
    fates: SmallVec<[Fate; 16]>,
}

/// Where an allocation is.
struct Place<B: Backend> {
    /// The number of the member that stands for it, and where in that it starts.
    member: u32,
    shift: u64,
    /// `None` for one without bytes.
    contents: Option<Arc<Contents<B>>>,
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

type Places<B> = SmallVec<[Place<B>; 8]>;

impl<'r, B: Backend> Sealing<'r, B> {
    fn new(core: &'r StreamCore<B>, recorder: &'r mut Recorder<B>, options: &'r CaptureOptions<B>) -> Self {
        let fate = |touched: &Touched<B>| match touched.born {
            false => Fate::Outside,
            // The recorder holds one reference; any other is the user's. What has no bytes lies in no arena.
            true if touched.alloc.bytes == 0 || Arc::strong_count(&touched.alloc) > 1 => Fate::Survives,
            true => Fate::Temporary,
        };
        let mut fates: SmallVec<[Fate; 16]> = recorder.allocs.iter().map(fate).collect();
        for at in recorder.placed() {
            let fate = &mut fates[at as usize];
            if *fate == Fate::Temporary {
                *fate = Fate::Placed;
            }
        }
        Sealing { core, recorder, options, fates }
    }

    fn seal(mut self) -> Result<Graph<B>> {
        self.leave_out_zeroings();
        let mut flow = self.flow();
        let (plan, offsets) = self.plan(&mut flow);
        let dag = flow.finish();
        let arena = self.arena(&plan)?;
        let mut survivors = Survivors { device: &self.core.device, reserved: Vec::new() };
        for (at, early) in self.recorder.take_early() {
            let alloc = &self.recorder.allocs[at as usize].alloc;
            survivors.reserved.extend(early.take().map(|reserved| (alloc.clone(), reserved)));
        }
        let places = self.place(arena.as_ref(), &offsets, &mut survivors)?;
        let members = self.members(arena.as_ref());
        let list = Arc::new(self.commands(&places));
        let device = &self.core.device;
        let exec = device
            .backend
            .seal(&list, &dag, self.fleeting(&places))
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

    /// What each node uses.
    fn footprints(&self) -> impl Iterator<Item = Footprint<'_>> + Clone {
        let uses = &self.recorder.uses;
        self.recorder
            .nodes
            .iter()
            .map(|node| Footprint { uses: &uses[node.uses()], barrier: node.kind == Kind::Barrier })
    }

    /// Takes out zeroings that nobody could tell from none.
    fn leave_out_zeroings(&mut self) {
        if self.recorder.zeroings == 0 {
            return;
        }
        let recorder = &*self.recorder;
        let zeroes = |n: u32| {
            let node = recorder.nodes.get(n as usize).filter(|node| node.kind == Kind::Zeroing)?;
            recorder.uses.get(node.uses().start).map(|used| used.alloc)
        };
        let needed = zeroing::needed(
            self.footprints(),
            zeroes,
            |alloc| self.fates[alloc as usize] == Fate::Survives,
            |alloc| recorder.allocs[alloc as usize].alloc.bytes as u64,
            recorder.allocs.len(),
        );
        self.recorder.leave_out(&needed);
    }

    /// The edges of the nodes, and what knows their order.
    fn flow(&self) -> reach::Builder {
        let Recorder { nodes, uses, allocs, .. } = &*self.recorder;
        match self.options.order {
            Order::Sequential => flow::sequential(nodes.len()),
            Order::DataFlow => flow::data_flow(self.footprints(), uses, allocs.len()),
        }
    }

    /// The plan for the temporaries, and where it puts each allocation, if there are any.
    fn plan(&self, flow: &mut reach::Builder) -> (Plan, Vec<Option<usize>>) {
        let is_temporary = |alloc: &usize| self.fates[*alloc] == Fate::Temporary;
        let temporaries: Vec<usize> = (0..self.fates.len()).filter(is_temporary).collect();
        if temporaries.is_empty() {
            return (Plan::default(), Vec::new());
        }
        let mut request_of = vec![usize::MAX; self.fates.len()];
        let mut requests: Vec<Request> = Vec::with_capacity(temporaries.len());
        for (request, alloc) in temporaries.iter().enumerate() {
            request_of[*alloc] = request;
            let bytes = self.recorder.allocs[*alloc].alloc.bytes as u64;
            requests.push(Request { bytes, uses: Vec::new() });
        }
        for (at, node) in (0u32..).zip(self.footprints()) {
            for used in node.uses {
                if let Some(request) = requests.get_mut(request_of[used.alloc as usize])
                    && request.uses.last() != Some(&at)
                {
                    request.uses.push(at);
                }
            }
        }
        let align = self.core.device.limits.alignment as u64;
        let (reach, dag) = flow.order();
        let plan = plan(&requests, reach, dag, align);
        let mut offsets = vec![None; self.fates.len()];
        for (alloc, offset) in temporaries.iter().zip(&plan.offsets) {
            offsets[*alloc] = offset.map(to_usize);
        }
        (plan, offsets)
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

    /// Gives every allocation its bytes, and a member of the graph to stand for it.
    fn place(
        &self,
        arena: Option<&Arc<Allocation<B>>>,
        offsets: &[Option<usize>],
        survivors: &mut Survivors<'_, B>,
    ) -> Result<Places<B>> {
        let arena =
            arena.map(|arena| arena.state.lock().resolve("end").map(|home| home.cloned())).transpose()?;
        let (arena, mut member) = (arena.flatten(), 0);
        let temporaries = self.fates.iter().filter(|fate| **fate == Fate::Temporary).count();
        let arenas_member = (self.fates.len() - temporaries) as u32;
        let mut places = Places::with_capacity(self.fates.len());
        for (at, touched) in self.recorder.allocs.iter().enumerate() {
            if self.fates[at] == Fate::Temporary {
                // What nothing uses that stays has no place, and its number says nothing.
                let shift = offsets[at].unwrap_or(0);
                let contents = offsets[at].zip(arena.as_ref());
                let contents =
                    contents.map(|(at, arena)| Contents::new(arena.page.clone(), arena.offset + at));
                places.push(Place { member: arenas_member, shift: shift as u64, contents });
                continue;
            }
            let contents = self.own(&touched.alloc, self.fates[at], survivors)?;
            places.push(Place { member, shift: 0, contents });
            member += 1;
        }
        Ok(places)
    }

    /// The bytes of an allocation that is none of the arena's.
    fn own(
        &self,
        alloc: &Arc<Allocation<B>>,
        fate: Fate,
        survivors: &mut Survivors<'_, B>,
    ) -> Result<Option<Arc<Contents<B>>>> {
        if !matches!(fate, Fate::Survives | Fate::Placed) || alloc.bytes == 0 {
            return Ok(alloc.state.lock().resolve("end")?.cloned());
        }
        let place = match survivors.find(alloc) {
            Some(place) => place,
            None => {
                let reserved = reserve(&self.core.device, self.core.slot, alloc.bytes, self.core.mode)?;
                survivors.add(alloc, reserved)
            }
        };
        place.taint.set(0..alloc.bytes, Arc::new(Error::NotReplayed));
        Ok(Some(place))
    }

    /// What holds nothing from one replay to the next: what nobody holds, and the same of embedded children.
    fn fleeting(&self, places: &[Place<B>]) -> Vec<Fleeting<B>> {
        let allocs = self.fates.iter().zip(&self.recorder.allocs).zip(places);
        let fleeting = allocs.filter(|((fate, touched), _)| {
            let nobodys = matches!(fate, Fate::Temporary | Fate::Placed);
            nobodys || touched.alloc.is_arena || touched.alloc.state.lock().is_lone
        });
        fleeting
            .filter_map(|((_, touched), place)| {
                let contents = place.contents.clone()?;
                Some(Fleeting { contents, bytes: touched.alloc.bytes })
            })
            .collect()
    }

    /// The allocations that the graph belongs to, its arena last.
    fn members(&self, arena: Option<&Arc<Allocation<B>>>) -> Vec<Arc<Allocation<B>>> {
        let mut members = Vec::with_capacity(self.fates.len() + 1);
        let allocs = self.fates.iter().zip(&self.recorder.allocs);
        let own = allocs.filter(|(fate, _)| **fate != Fate::Temporary);
        members.extend(own.map(|(_, touched)| touched.alloc.clone()));
        members.extend(arena.cloned());
        members
    }

    /// The nodes, taken from the recorder, with their uses in terms of the graph's members and where those are.
    fn commands(&mut self, places: &[Place<B>]) -> Commands<B> {
        let (mut nodes, mut uses, scalars) = self.recorder.take_lists();
        let mut regions = Vec::with_capacity(uses.len());
        for used in &mut uses {
            let Place { member, shift, contents } = &places[used.alloc as usize];
            regions.push(Region {
                contents: contents.as_ref().filter(|_| used.start < used.end).cloned(),
                start: used.start as usize,
                end: used.end as usize,
                access: used.access,
            });
            *used = Use { alloc: *member, start: used.start + shift, end: used.end + shift, ..*used };
        }
        if self.options.order == Order::Sequential {
            // Embedded into a graph that follows the data, the nodes must still follow each other.
            nodes.iter_mut().for_each(|node| node.kind = Kind::Barrier);
        }
        Commands { nodes, uses, regions, scalars }
    }

    /// Makes the graph a member of everything that it uses, and orders it after everything that used it before.
    ///
    /// Only here, when the slot owns all of it and nothing is left that could fail, do survivors get their bytes: nobody can
    /// have used them before.
    fn join(
        &self,
        members: &[Arc<Allocation<B>>],
        footprints: &[Footprints],
        mut survivors: Survivors<'_, B>,
    ) -> Arc<GraphOrder> {
        let StreamCore { device, slot, .. } = self.core;
        let _lane = enter(&**device, *slot, |visit| {
            members.iter().zip(footprints).for_each(|(alloc, ranges)| alloc.visit(ranges, visit));
        });
        survivors.reserved.drain(..).for_each(|(alloc, reserved)| alloc.place(reserved));
        let placed = self.fates.iter().zip(&self.recorder.allocs).filter(|(fate, _)| **fate == Fate::Placed);
        placed.for_each(|(_, touched)| touched.alloc.state.lock().is_lone = true);
        let order = GraphOrder::new(*slot, Marks::default());
        for (alloc, ranges) in members.iter().zip(footprints) {
            let mut state = alloc.state.lock();
            let mut noted = order.state.lock();
            for (range, access) in ranges {
                state.uses.collect(range, *access, &mut noted.noted);
            }
            drop(noted);
            state.conflicting_with(ranges).for_each(|other| link(&order, other));
            let membership = Membership { graph: order.clone(), ranges: ranges.clone() };
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
