//! Who may look at what: the owners of objects, and the locks under which they change.

#![forbid(unsafe_code)]

use parking_lot::MutexGuard;
use smallvec::SmallVec;

use crate::backend::Backend;
use crate::capture::sync::{AtomicU32, Ordering};
use crate::device::{DeviceCore, Lane, Slot};

/// The slot that an object's records belong to.
#[derive(Debug)]
pub(crate) struct Owner(AtomicU32);

impl Owner {
    pub(crate) fn new(slot: u32) -> Self {
        Owner(AtomicU32::new(slot))
    }

    #[inline]
    pub(crate) fn is(&self, slot: u32) -> bool {
        self.get() == slot
    }

    #[inline]
    pub(crate) fn get(&self) -> u32 {
        // Relaxed: read either under the lock of the slot that it names, or under the order lock; both locks carry
        // every change. A stale value read before either is only a guess, and is read again under them.
        self.0.load(Ordering::Relaxed)
    }

    /// Under the locks of both owners, or for an object that nobody refers to yet.
    pub(crate) fn set(&self, slot: u32) {
        self.0.store(slot, Ordering::Relaxed);
    }
}

/// The locks of a device: one a slot, and one for changes of ownership.
pub(crate) trait Lanes {
    /// The lock of a slot, held.
    type Lane<'l>
    where
        Self: 'l;
    /// The order lock, held.
    type Order<'l>
    where
        Self: 'l;

    fn lane(&self, slot: u32) -> Self::Lane<'_>;

    fn order(&self) -> Self::Order<'_>;
}

impl<B: Backend> Lanes for DeviceCore<B> {
    type Lane<'l> = MutexGuard<'l, Lane>;
    type Order<'l> = MutexGuard<'l, ()>;

    #[inline]
    fn lane(&self, slot: u32) -> MutexGuard<'_, Lane> {
        self.slot(slot).lane()
    }

    fn order(&self) -> MutexGuard<'_, ()> {
        self.order.lock()
    }
}

/// Locks `slot` once it owns every object that `objects` calls its argument with.
///
/// `objects` is called under locks and must not take any but the objects' own. An object that leads to others (an allocation
/// to its graphs, a graph to its links) is named before them: what it leads to is only known once it is owned.
pub(crate) fn enter<L: Lanes>(
    device: &L,
    slot: u32,
    objects: impl Fn(&mut dyn FnMut(&Owner)),
) -> L::Lane<'_> {
    let lane = device.lane(slot);
    let mut owned = true;
    objects(&mut |owner| owned &= owner.is(slot));
    if owned {
        return lane;
    }
    drop(lane);
    let order = device.order();
    let mut slots = owners_of(&objects);
    slots.push(slot);
    let mut mine = None;
    let mut others: SmallVec<[L::Lane<'_>; 4]> = SmallVec::new();
    for (index, lane) in lanes(device, slots) {
        if index == slot { mine = Some(lane) } else { others.push(lane) }
    }
    // Again, since what the owners did until their lanes were locked may have added objects, all of them theirs.
    objects(&mut |owner| owner.set(slot));
    drop(others);
    drop(order);
    // `slots` held `slot`, so `mine` is set; locking anew is what an impossible miss would cost.
    mine.unwrap_or_else(|| device.lane(slot))
}

/// The owners of some objects, locked, and kept.
pub(crate) struct Owners<'l, L: Lanes + 'l> {
    _lanes: SmallVec<[L::Lane<'l>; 4]>,
    _order: L::Order<'l>,
}

/// Locks the owner of every object that `objects` calls its argument with, for a change that no slot makes.
///
/// `objects` is called under the order lock and must not take any but the objects' own. What an owner makes an object of
/// theirs refer to before its lane is locked is the owner's own, and so is locked too.
pub(crate) fn enter_owners<L: Lanes>(device: &L, objects: impl Fn(&mut dyn FnMut(&Owner))) -> Owners<'_, L> {
    let order = device.order();
    let lanes = lanes(device, owners_of(&objects)).map(|(_, lane)| lane).collect();
    Owners { _lanes: lanes, _order: order }
}

/// The slots that own the objects. Under the order lock.
fn owners_of(objects: &impl Fn(&mut dyn FnMut(&Owner))) -> SmallVec<[u32; 4]> {
    let mut slots = SmallVec::new();
    objects(&mut |owner| slots.push(owner.get()));
    slots
}

/// Locks each of the slots once, in the order of their index.
fn lanes<L: Lanes>(device: &L, mut slots: SmallVec<[u32; 4]>) -> impl Iterator<Item = (u32, L::Lane<'_>)> {
    slots.sort_unstable();
    slots.dedup();
    slots.into_iter().map(|slot| (slot, device.lane(slot)))
}

/// Every slot of the device, locked: for moves of whatever lies on a page.
pub(crate) struct Everything<'d> {
    lanes: SmallVec<[MutexGuard<'d, Lane>; 8]>,
    _order: MutexGuard<'d, ()>,
}

impl Everything<'_> {
    /// What the lock of `slot` guards.
    pub(crate) fn lane(&mut self, slot: u32) -> &mut Lane {
        #[allow(clippy::indexing_slicing, reason = "there is a lane for each slot, and slots have no others")]
        &mut self.lanes[slot as usize]
    }
}

pub(crate) fn enter_all<B: Backend>(device: &DeviceCore<B>) -> Everything<'_> {
    let order = device.order.lock();
    let lanes = device.slots.iter().map(Slot::lane).collect();
    Everything { lanes, _order: order }
}

#[cfg(all(test, loom))]
#[path = "models.rs"]
mod models;
