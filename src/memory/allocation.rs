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
use crate::memory::pool::Lease;
use crate::memory::{Reserved, release};
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

/// What the order of things knows of an allocation.
pub(crate) struct State<B: Backend> {
    pub(crate) home: Home<B>,
    pub(crate) uses: Uses,
    pub(crate) members: SmallVec<[Membership; 1]>,
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
    /// An allocation of `slot`; `reserved` is `None` for one without bytes.
    pub(crate) fn placed(
        device: &Arc<DeviceCore<B>>,
        slot: u32,
        bytes: usize,
        reserved: Option<Reserved<B>>,
    ) -> Arc<Self> {
        let (home, history) = match reserved {
            Some(Reserved { contents, lease, history }) => (Home::Placed { contents, lease }, history),
            None => (Home::Empty, Marks::default()),
        };
        Self::new(device, slot, bytes, home, history, false)
    }

    /// The arena of a graph.
    pub(crate) fn arena(
        device: &Arc<DeviceCore<B>>,
        slot: u32,
        bytes: usize,
        reserved: Reserved<B>,
    ) -> Arc<Self> {
        let Reserved { contents, lease, history } = reserved;
        Self::new(device, slot, bytes, Home::Placed { contents, lease }, history, true)
    }

    /// An allocation that exists in `window` only, so far.
    pub(crate) fn recorded(
        device: &Arc<DeviceCore<B>>,
        slot: u32,
        bytes: usize,
        window: WindowId,
    ) -> Arc<Self> {
        let home = if bytes == 0 { Home::Empty } else { Home::Recording(window) };
        Self::new(device, slot, bytes, home, Marks::default(), false)
    }

    fn new(
        device: &Arc<DeviceCore<B>>,
        slot: u32,
        bytes: usize,
        home: Home<B>,
        history: Marks,
        is_arena: bool,
    ) -> Arc<Self> {
        let state = State { home, uses: Uses::born(bytes, history), members: SmallVec::new() };
        Arc::new(Allocation {
            device: device.clone(),
            id: device.next_allocation(),
            bytes,
            is_arena,
            owner: Owner::new(slot),
            state: Mutex::new(state),
        })
    }

    pub(crate) fn device_id(&self) -> u32 {
        self.device.id
    }

    /// Gives a recorded allocation its bytes: it outlives its recording. Under every lock of the device, since from
    /// here on other streams may use it.
    pub(crate) fn place(&self, reserved: Reserved<B>) {
        let mut state = self.state.lock();
        state.home = Home::Placed { contents: reserved.contents, lease: reserved.lease };
        state.uses = Uses::born(self.bytes, reserved.history);
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
            release(&self.device, &contents, lease, history);
        }
    }
}
