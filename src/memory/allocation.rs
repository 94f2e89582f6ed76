//! One allocation: where its bytes are, who used them last, and which graphs they belong to.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::access::Access;
use crate::backend::{Backend, Contents};
use crate::capture::status::WindowId;
use crate::device::DeviceCore;
use crate::error::{Error, Result};
use crate::memory::pool::{Lease, release};
use crate::memory::reserve::{introduce, reserve_for};
use crate::memory::{AllocationMode, Reserved};
use crate::order::{GraphOrder, Marks, Membership, Owner, Uses};

/// The memory behind one buffer and the parts split off it.
pub struct Allocation<B: Backend> {
    device: Arc<DeviceCore<B>>,
    pub(crate) id: u64,
    pub(crate) bytes: usize,
    /// Whether it is the arena of a graph, whose contents mean nothing between two replays.
    pub(crate) is_arena: bool,
    /// The slot whose lock guards `state` (see [`crate::order`]).
    pub(crate) owner: Owner,
    /// Hardly ever contended: whoever uses the records holds the owner's lock or the order lock, and a recording only
    /// looks at the home.
    pub(crate) state: Mutex<State<B>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Buffer,
    Arena,
}

/// What the order of things knows of an allocation.
pub(crate) struct State<B: Backend> {
    pub(crate) home: Home<B>,
    pub(crate) uses: Uses,
    pub(crate) members: SmallVec<[Membership; 1]>,
    /// How many open windows and raw addresses hold the bytes where they are.
    pub(crate) pins: u32,
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
    /// An allocation of `bytes` bytes, more than none, that are there now.
    ///
    /// # Errors
    /// As for [`reserve`](crate::memory::reserve::reserve).
    pub(crate) fn placed(
        device: &Arc<DeviceCore<B>>,
        slot: u32,
        bytes: usize,
        mode: AllocationMode,
    ) -> Result<Arc<Self>> {
        reserve_for(device, slot, bytes, mode, |Reserved { contents, lease, history }, id| {
            let home = Home::Placed { contents, lease };
            Self::new(device, (id, slot), bytes, home, history, Kind::Buffer)
        })
    }

    /// An allocation without bytes.
    pub(crate) fn empty(device: &Arc<DeviceCore<B>>, slot: u32) -> Arc<Self> {
        let id = device.next_allocation();
        Self::new(device, (id, slot), 0, Home::Empty, Marks::default(), Kind::Buffer)
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
            device: device.clone(),
            id,
            bytes,
            is_arena: kind == Kind::Arena,
            owner: Owner::new(slot),
            state: Mutex::new(State { home, uses, members: SmallVec::new(), pins: 0 }),
        })
    }

    pub(crate) fn device_id(&self) -> u32 {
        self.device.id
    }

    /// Gives a recorded allocation its bytes: it outlives its recording. Under every lock of the device, since from
    /// here on other streams may use it.
    pub(crate) fn place(self: &Arc<Self>, reserved: Reserved<B>) {
        let Reserved { contents, lease, history } = reserved;
        let mut state = self.state.lock();
        state.home = Home::Placed { contents, lease };
        state.uses = Uses::born(self.bytes, history);
        drop(state);
        introduce(&self.device, &lease, self);
    }

    /// Bytes that must stay where they are.
    pub(crate) fn pinned_bytes(&self) -> usize {
        let state = self.state.lock();
        match &state.home {
            Home::Placed { lease, .. } if state.is_pinned() => lease.bytes(),
            _ => 0,
        }
    }

    /// Marks all of the bytes as unwritten, for `cause`. Nobody has used them yet.
    pub(crate) fn taint(&self, cause: Error) {
        if let Home::Placed { contents, .. } = &self.state.lock().home {
            contents.taint.set(0..self.bytes, Arc::new(cause));
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

impl<B: Backend> State<B> {
    /// Where the bytes are, for an operation that runs now; `None` if there are none.
    pub(crate) fn resolve(&self, operation: &'static str) -> Result<Option<&Arc<Contents<B>>>> {
        match &self.home {
            Home::Empty => Ok(None),
            Home::Placed { contents, .. } => Ok(Some(contents)),
            Home::Recording(window) => Err(Error::StillRecording { operation, window: *window }),
            Home::Dead(cause) => Err(Error::NeverSealed { cause: cause.clone() }),
        }
    }

    /// The graphs whose replays a use of `range` must keep its order with.
    pub(crate) fn conflicting<'s>(
        &'s self,
        range: &'s Range<usize>,
        access: Access,
    ) -> impl Iterator<Item = &'s GraphOrder> {
        let members = self.members.iter().filter(move |member| member.conflicts(range, access));
        members.map(|member| &*member.graph)
    }

    /// Whether the bytes must stay where they are: a graph, an open window or a raw address counts on it.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pins > 0 || !self.members.is_empty()
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
        let state = self.state.get_mut();
        if let Home::Placed { contents, lease } = std::mem::replace(&mut state.home, Home::Empty) {
            let history = state.uses.history(&(0..self.bytes));
            release(&self.device, contents, lease, history);
        }
    }
}
