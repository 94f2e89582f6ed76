//! One allocation: where its bytes are, who used them last, and which graphs they belong to.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::access::Access;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use crate::backend::Page;
use crate::backend::{Backend, Contents};
use crate::capture::status::WindowId;
use crate::device::DeviceCore;
use crate::error::{Error, Result};
use crate::memory::pool::{Lease, release};
use crate::memory::reserve::{introduce, reserve_for};
use crate::memory::{AllocationMode, Reserved};
use crate::order::{GraphOrder, Marks, Membership, Owner, Uses};

/// The memory behind one buffer and the parts split off it.
///
/// In the order of its fields: what a launch needs is side by side.
#[repr(C)]
pub struct Allocation<B: Backend> {
    device: u32,
    /// The slot whose lock guards `state` (see [`crate::order`]).
    pub(crate) owner: Owner,
    /// How many members `state` has, so that a use of a buffer that is in no graph looks for none.
    memberships: AtomicU32,
    /// Its number in the recording that touched it last.
    guess: AtomicU32,
    pub(crate) bytes: usize,
    id: AtomicU64,
    /// Whether it is the arena of a graph, whose contents mean nothing between two replays.
    pub(crate) is_arena: bool,
    /// Whether it is a token, which only the order of things knows of.
    pub(crate) is_token: bool,
    /// Hardly ever contended: whoever uses the records holds the owner's lock or the order lock, and a recording only
    /// looks at the home.
    pub(crate) state: Mutex<State<B>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Buffer,
    Arena,
    Token,
}

/// What the order of things knows of an allocation. In the order of its fields, as [`Allocation`] is.
#[repr(C)]
pub(crate) struct State<B: Backend> {
    pub(crate) home: Home<B>,
    pub(crate) uses: Uses,
    pub(crate) device: Tie<B>,
    members: SmallVec<[Membership; 1]>,
    /// Whether it belongs to a graph that alone knows it, so that its contents mean nothing between two replays.
    pub(crate) is_lone: bool,
    /// How many open windows and raw addresses hold the bytes where they are.
    pub(crate) pins: u32,
}

/// The device that an allocation gives its bytes back to.
pub(crate) enum Tie<B: Backend> {
    /// None: it waits for its next tenant, and what a pool keeps must not keep the device.
    Cut,
    /// It keeps the device, as everything does that a user may hold.
    Keeps(Arc<DeviceCore<B>>),
    /// It is the device's own, and goes with it.
    Own(Weak<DeviceCore<B>>),
}

/// Where the bytes are.
pub(crate) enum Home<B: Backend> {
    /// Nowhere: there are none.
    Empty,
    /// On the device.
    Placed { contents: Arc<Contents<B>>, lease: Lease },
    /// Born in a recording that is still open: a name, not an address.
    Recording(WindowId),
    /// Born in a recording that never became a graph.
    Dead(Arc<Error>),
}

impl<B: Backend> Allocation<B> {
    /// An allocation of `bytes` bytes, more than none, that are there now. Until they are written, reads of them are told
    /// that they are `unwritten`, if that is to be told at all.
    ///
    /// # Errors
    /// As for [`reserve`](crate::memory::reserve::reserve).
    pub(crate) fn placed(
        device: &Arc<DeviceCore<B>>,
        slot: u32,
        bytes: usize,
        mode: AllocationMode,
        unwritten: Option<Error>,
    ) -> Result<Arc<Self>> {
        let unwritten = unwritten.map(Arc::new);
        let told = unwritten.as_ref();
        reserve_for(device, slot, bytes, mode, told, |Reserved { contents, lease, history }, id| {
            told.into_iter().for_each(|cause| contents.taint.set(0..bytes, cause.clone()));
            let home = Home::Placed { contents, lease };
            Self::new(device, (id, slot), bytes, home, history, Kind::Buffer)
        })
    }

    /// An allocation without bytes.
    pub(crate) fn empty(device: &Arc<DeviceCore<B>>, slot: u32) -> Arc<Self> {
        let id = device.next_allocation();
        Self::new(device, (id, slot), 0, Home::Empty, Marks::default(), Kind::Buffer)
    }

    /// A table that the device itself holds, in the cache of `slot`.
    ///
    /// # Errors
    /// As for [`reserve`](crate::memory::reserve::reserve).
    pub(crate) fn table(device: &Arc<DeviceCore<B>>, slot: u32, bytes: usize) -> Result<Arc<Self>> {
        let table = match bytes {
            0 => Self::empty(device, slot),
            _ => Self::placed(device, slot, bytes, AllocationMode::Pooled, None)?,
        };
        table.state.lock().device = Tie::Own(Arc::downgrade(device));
        Ok(table)
    }

    /// The arena of a graph.
    pub(crate) fn arena(
        device: &Arc<DeviceCore<B>>,
        slot: u32,
        bytes: usize,
        reserved: Reserved<B>,
    ) -> Arc<Self> {
        let Reserved { contents, lease, history } = reserved;
        let (id, home) = (device.next_allocation(), Home::Placed { contents, lease });
        Self::new(device, (id, slot), bytes, home, history, Kind::Arena)
    }

    /// Somebody else's memory, with the history that it comes with.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(crate) fn adopted(
        device: &Arc<DeviceCore<B>>,
        slot: u32,
        memory: B::Memory,
        bytes: usize,
        history: Marks,
    ) -> Arc<Self> {
        device.memory.adopted.enter(bytes);
        let contents = Contents::new(Arc::new(Page { memory, bytes }), 0);
        let (id, home) =
            (device.next_allocation(), Home::Placed { contents, lease: Lease::Adopted { bytes } });
        Self::new(device, (id, slot), bytes, home, history, Kind::Buffer)
    }

    /// An allocation that exists in `window` only, so far.
    pub(crate) fn recorded(
        device: &Arc<DeviceCore<B>>,
        slot: u32,
        bytes: usize,
        window: WindowId,
    ) -> Arc<Self> {
        let home = if bytes == 0 { Home::Empty } else { Home::Recording(window) };
        Self::new(device, (device.next_allocation(), slot), bytes, home, Marks::default(), Kind::Buffer)
    }

    /// A token: it has no bytes anywhere, and is used as if it had one.
    pub(crate) fn token(device: &Arc<DeviceCore<B>>) -> Arc<Self> {
        let id = (device.next_allocation(), 0);
        let token = Self::new(device, id, 1, Home::Empty, Marks::default(), Kind::Token);
        // It gives nothing back, and the device may keep one.
        token.state.lock().device = Tie::Cut;
        token
    }

    fn new(
        device: &Arc<DeviceCore<B>>,
        (id, slot): (u64, u32),
        bytes: usize,
        home: Home<B>,
        history: Marks,
        kind: Kind,
    ) -> Arc<Self> {
        let uses = Uses::born(bytes, history);
        Arc::new(Allocation {
            device: device.id,
            id: AtomicU64::new(id),
            bytes,
            is_arena: kind == Kind::Arena,
            is_token: kind == Kind::Token,
            owner: Owner::new(slot),
            memberships: AtomicU32::new(0),
            guess: AtomicU32::new(u32::MAX),
            state: Mutex::new(State {
                device: Tie::Keeps(device.clone()),
                home,
                uses,
                members: SmallVec::new(),
                is_lone: false,
                pins: 0,
            }),
        })
    }

    pub(crate) fn device_id(&self) -> u32 {
        self.device
    }

    /// The number that tells it from every other allocation of its device.
    pub(crate) fn id(&self) -> u64 {
        // Relaxed: it changes only while nobody refers to the allocation, and whoever is handed it sees the change.
        self.id.load(Ordering::Relaxed)
    }

    /// Starts anew, for another tenant of `slot`: with the same bytes and the history of their uses, but under another
    /// name and with no failures but that the bytes are `unwritten`, if that is to be told.
    pub(crate) fn revive(
        &self,
        device: &Arc<DeviceCore<B>>,
        (slot, id): (u32, u64),
        unwritten: Option<&Arc<Error>>,
    ) {
        self.id.store(id, Ordering::Relaxed);
        self.owner.set(slot);
        let state = &mut *self.state.lock();
        state.device = Tie::Keeps(device.clone());
        if state.uses.pieces() > 0 {
            state.uses = Uses::born(self.bytes, state.uses.history(&(0..self.bytes)));
        }
        if let Home::Placed { contents, .. } = &mut state.home {
            match Arc::get_mut(contents) {
                Some(contents) => contents.taint.reset(),
                // Work in flight may still find a failure, which is not the new tenant's.
                None => {
                    let (page, offset) = (contents.page.clone(), contents.offset);
                    *contents = Contents::new(page, offset);
                }
            }
            // Before the lock is let go of: a move that is enqueued from then on takes it along.
            unwritten.into_iter().for_each(|cause| contents.taint.set(0..self.bytes, cause.clone()));
        }
    }

    /// Takes an allocation that waited for a tenant apart.
    pub(crate) fn dismantle(&self, device: &DeviceCore<B>) {
        self.state.lock().vacate(device, self.bytes);
    }

    /// Gives a recorded allocation its bytes: it outlives its recording. Under the lock of its owner, since from here on
    /// other streams may use it.
    pub(crate) fn place(self: &Arc<Self>, reserved: Reserved<B>) {
        let Reserved { contents, lease, history } = reserved;
        let mut state = self.state.lock();
        state.home = Home::Placed { contents, lease };
        state.uses = Uses::born(self.bytes, history);
        let device = state.device.device();
        drop(state);
        if let Some(device) = device {
            introduce(&device, &lease, self);
        }
    }

    /// Where a recording may have it among what it touches: a guess, which is to be checked there.
    #[inline]
    pub(crate) fn guess(&self) -> u32 {
        // Relaxed: any number will do.
        self.guess.load(Ordering::Relaxed)
    }

    pub(crate) fn note_guess(&self, number: u32) {
        self.guess.store(number, Ordering::Relaxed);
    }

    /// Whether it belongs to no graph. Under the lock of its owner; else it is a guess, as the owner is.
    #[inline]
    pub(crate) fn is_free_of_graphs(&self) -> bool {
        // Relaxed: it changes only under the lock of its owner, which carries the change.
        self.memberships.load(Ordering::Relaxed) == 0
    }

    /// Calls `visit` with the owner of every object that whoever uses these `ranges` looks at: the allocation, and the graphs
    /// that use it in conflict with them.
    pub(crate) fn visit(&self, ranges: &[(Range<usize>, Access)], visit: &mut dyn FnMut(&Owner)) {
        visit(&self.owner);
        if !self.is_free_of_graphs() {
            self.state.lock().conflicting_with(ranges).for_each(|graph| visit(&graph.owner));
        }
    }

    /// Makes it a member of a graph that the same slot owns, under the lock of that slot.
    pub(crate) fn join(&self, state: &mut State<B>, membership: Membership) {
        state.members.push(membership);
        self.memberships.store(state.members.len() as u32, Ordering::Relaxed);
    }

    /// Takes it out of a graph. Under the lock of its owner.
    pub(crate) fn leave(&self, state: &mut State<B>, graph: &Arc<GraphOrder>) {
        state.members.retain(|member| !Arc::ptr_eq(&member.graph, graph));
        self.memberships.store(state.members.len() as u32, Ordering::Relaxed);
    }

    /// Bytes that must stay where they are.
    pub(crate) fn pinned_bytes(&self) -> usize {
        let state = self.state.lock();
        match &state.home {
            Home::Placed { lease, .. } if state.is_pinned() => lease.bytes(),
            _ => 0,
        }
    }

    /// Marks an allocation born in a recording as one that will never have bytes.
    pub(crate) fn kill(&self, cause: &Arc<Error>) {
        let mut state = self.state.lock();
        if matches!(state.home, Home::Recording(_)) {
            state.home = Home::Dead(cause.clone());
        }
    }
}

impl<B: Backend> Tie<B> {
    /// The device, unless it is gone.
    fn device(&self) -> Option<Arc<DeviceCore<B>>> {
        match self {
            Tie::Cut => None,
            Tie::Keeps(device) => Some(device.clone()),
            Tie::Own(device) => device.upgrade(),
        }
    }

    /// Cuts it; returns the device, unless that is gone.
    pub(crate) fn cut(&mut self) -> Option<Arc<DeviceCore<B>>> {
        match std::mem::replace(self, Tie::Cut) {
            Tie::Cut => None,
            Tie::Keeps(device) => Some(device),
            Tie::Own(device) => device.upgrade(),
        }
    }
}

impl<B: Backend> State<B> {
    /// Whether what was to write any of the bytes is known to have failed.
    pub(crate) fn is_tainted(&self, range: &Range<usize>) -> bool {
        match &self.home {
            Home::Placed { contents, .. } => contents.taint.find(range.clone()).is_some(),
            Home::Empty | Home::Recording(_) | Home::Dead(_) => false,
        }
    }

    /// Gives the bytes back to their pool.
    fn vacate(&mut self, device: &DeviceCore<B>, bytes: usize) {
        if let Home::Placed { contents, lease } = std::mem::replace(&mut self.home, Home::Empty) {
            release(device, contents, lease, self.uses.history(&(0..bytes)));
        }
    }

    /// The device, unless that is gone.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(crate) fn device(&self) -> Option<Arc<DeviceCore<B>>> {
        self.device.device()
    }

    /// Forgets memory that its owner has back.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(crate) fn abandon_adopted(&mut self, device: &DeviceCore<B>) {
        if let Home::Placed { lease: Lease::Adopted { bytes }, .. } = self.home {
            device.memory.adopted.leave(bytes);
            self.home = Home::Empty;
        }
    }

    /// Whether it waits in its pool for its next tenant.
    pub(crate) fn is_stashed(&self) -> bool {
        matches!(self.device, Tie::Cut)
    }

    /// Where the bytes are, for an operation that runs now; `None` if there are none.
    #[inline]
    pub(crate) fn resolve(&self, operation: &'static str) -> Result<Option<&Arc<Contents<B>>>> {
        if let Home::Placed { contents, .. } = &self.home {
            return Ok(Some(contents));
        }
        self.resolve_elsewhere(operation)
    }

    /// [`resolve`](State::resolve), of bytes that are not on the device.
    #[inline(never)]
    fn resolve_elsewhere(&self, operation: &'static str) -> Result<Option<&Arc<Contents<B>>>> {
        match &self.home {
            Home::Empty => Ok(None),
            Home::Placed { contents, .. } => Ok(Some(contents)),
            Home::Recording(window) => Err(Error::StillRecording { operation, window: *window }),
            Home::Dead(cause) => Err(Error::NeverSealed { cause: cause.clone() }),
        }
    }

    /// The graphs whose replays a use of these `ranges` must keep its order with.
    pub(crate) fn conflicting_with<'s>(
        &'s self,
        ranges: &'s [(Range<usize>, Access)],
    ) -> impl Iterator<Item = &'s Arc<GraphOrder>> {
        let conflicts =
            |member: &&Membership| ranges.iter().any(|(range, access)| member.conflicts(range, *access));
        self.members.iter().filter(conflicts).map(|member| &member.graph)
    }

    /// Whether it belongs to a graph.
    pub(crate) fn is_in_graph(&self) -> bool {
        !self.members.is_empty()
    }

    /// Whether the bytes must stay where they are: a graph, an open window or a raw address counts on it.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pins > 0 || self.is_in_graph()
    }

    /// Whether `window` may record a use.
    pub(crate) fn recordable(&self, operation: &'static str, in_window: WindowId) -> Result<()> {
        match &self.home {
            Home::Recording(window) if *window == in_window => Ok(()),
            _ => self.resolve(operation).map(drop),
        }
    }
}

impl<B: Backend> Drop for Allocation<B> {
    fn drop(&mut self) {
        let bytes = self.bytes;
        let state = self.state.get_mut();
        if let Some(device) = state.device.cut() {
            state.vacate(&device, bytes);
        }
    }
}
