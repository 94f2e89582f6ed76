//! Host memory that the device may still touch, until it has passed it.
//!
//! A transfer runs after its call returned, so that neither the user nor a `drop` may give its host memory up. Each
//! slot keeps that memory in the order of its queue, and lets go of it when the queue has come past.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::backend::command::Work;
use crate::backend::{Backend, Job};
use crate::device::{DeviceCore, Lane, Slot};
use crate::memory::staging::{Staged, Staging};
use crate::readback::Readback;

/// What waits for its operation to be done, in the order of the queue.
pub(crate) struct DropQueue<T> {
    items: VecDeque<Waiting<T>>,
    /// The sum of all items, or the largest number there is.
    bytes: u64,
}

struct Waiting<T> {
    seq: u64,
    bytes: u64,
    item: T,
}

/// How much host memory a slot may have waiting before the next operation waits for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) items: usize,
    pub(crate) bytes: u64,
}

/// What a slot's queue holds, to be read without its lock.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    items: AtomicUsize,
    bytes: AtomicU64,
}

/// Host memory of one transfer.
pub(crate) enum Kept {
    Write(Arc<Staged>),
    Read(Arc<Readback>),
}

impl<T> Default for DropQueue<T> {
    fn default() -> Self {
        DropQueue { items: VecDeque::new(), bytes: 0 }
    }
}

impl<T> DropQueue<T> {
    /// Keeps `item`, of `bytes` bytes, until the operation `seq` is done; `seq` never goes down.
    pub(crate) fn push(&mut self, seq: u64, bytes: u64, item: T) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.items.push_back(Waiting { seq, bytes, item });
    }

    /// The oldest item, if its operation is not after `completed`.
    pub(crate) fn pop(&mut self, completed: u64) -> Option<T> {
        let passed = self.items.pop_front_if(|waiting| waiting.seq <= completed)?;
        // A sum that was cut off is exact again with the next one that starts from nothing.
        self.bytes = if self.items.is_empty() { 0 } else { self.bytes.saturating_sub(passed.bytes) };
        Some(passed.item)
    }

    /// The operation that the oldest item waits for, while there is more than `limit` allows.
    pub(crate) fn overdue(&self, limit: Limit) -> Option<u64> {
        let above = self.items.len() > limit.items || self.bytes > limit.bytes;
        self.items.front().filter(|_| above).map(|oldest| oldest.seq)
    }
}

impl Backlog {
    #[inline]
    pub(crate) fn items(&self) -> usize {
        self.items.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Under the lock of the queue, which is what orders the numbers; who reads them without it gets a guess.
    pub(crate) fn publish<T>(&self, queue: &DropQueue<T>) {
        self.items.store(queue.items.len(), Ordering::Relaxed);
        self.bytes.store(queue.bytes, Ordering::Relaxed);
    }

    #[inline]
    fn is_above(&self, limit: Limit) -> bool {
        self.items() > limit.items || self.bytes() > limit.bytes
    }
}

impl Kept {
    /// The host memory that the device touches for `job`.
    #[inline]
    pub(crate) fn of<B: Backend>(job: &Job<B>) -> Option<(Self, u64)> {
        match &job.0 {
            Work::Write { bytes, .. } => Some((Kept::Write(bytes.clone()), bytes.held() as u64)),
            Work::Read { into, .. } => Some((Kept::Read(into.clone()), into.held() as u64)),
            _ => None,
        }
    }

    /// Gives it back to where it came from. Under no lock: it may be large.
    pub(crate) fn let_go(self, staging: &Staging) {
        match self {
            Kept::Write(staged) => staging.recycle_write(staged),
            Kept::Read(readback) => staging.recycle_read(readback),
        }
    }
}

/// What the queue has passed, to be let go of once its lock is free.
pub(crate) struct Passed([Option<Kept>; 2]);

impl Passed {
    pub(crate) fn let_go(self, staging: &Staging) {
        self.0.into_iter().flatten().for_each(|kept| kept.let_go(staging));
    }
}

/// Keeps the host memory of the operation `seq`, which `lane` has just enqueued, and looks for some that it need keep
/// no more: twice as much as comes, so that no more stays than the device still needs.
pub(crate) fn keep<B: Backend>(
    device: &DeviceCore<B>,
    slot: u32,
    lane: &mut Lane,
    seq: u64,
    (kept, bytes): (Kept, u64),
) -> Passed {
    let of = device.slot(slot);
    let completed = device.backend.completed(&of.queue);
    let passed = Passed(std::array::from_fn(|_| lane.drops.pop(completed)));
    lane.drops.push(seq, bytes, kept);
    of.backlog.publish(&lane.drops);
    passed
}

/// Lets go of what the slot's queue has passed.
pub(crate) fn release<B: Backend>(device: &DeviceCore<B>, slot: u32) {
    while device.slot(slot).backlog.items() > 0 {
        let Some(kept) = pop(device, slot) else { return };
        kept.let_go(&device.staging);
    }
}

/// Lets go of what every queue of the device has passed.
pub(crate) fn release_all<B: Backend>(device: &DeviceCore<B>) {
    (0..device.slots.len() as u32).for_each(|slot| release(device, slot));
}

/// The host memory that the device may still touch, in bytes.
pub(crate) fn pending_bytes<B: Backend>(device: &DeviceCore<B>) -> usize {
    let bytes = device.slots.iter().fold(0u64, |sum, slot| sum.saturating_add(slot.backlog.bytes()));
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Brings the slot's backlog down to the limit before it grows again, waiting for the device if need be.
///
/// With no lock held. It goes on without having waited on a lost device, and where nobody else makes the device run.
#[inline]
pub(crate) fn make_room<B: Backend>(device: &DeviceCore<B>, of: &Slot<B>, slot: u32) {
    if of.backlog.is_above(device.pending_limit) {
        wait_for_room(device, slot);
    }
}

#[cold]
fn wait_for_room<B: Backend>(device: &DeviceCore<B>, slot: u32) {
    let limit = device.pending_limit;
    release(device, slot);
    loop {
        let Some(oldest) = device.lane(slot).drops.overdue(limit) else { return };
        if !device.backend.wait_for_room(&device.slot(slot).queue, oldest) {
            return;
        }
        release(device, slot);
    }
}

fn pop<B: Backend>(device: &DeviceCore<B>, slot: u32) -> Option<Kept> {
    let of = device.slot(slot);
    let completed = device.backend.completed(&of.queue);
    let mut lane = device.lane(slot);
    let passed = lane.drops.pop(completed);
    of.backlog.publish(&lane.drops);
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Limit = Limit { items: 2, bytes: 1 << 20 };

    #[test]
    fn items_leave_in_the_order_of_the_queue_and_only_when_it_has_passed_them() {
        let mut queue = DropQueue::default();
        queue.push(3, 1, 'a');
        queue.push(7, 1, 'b');
        assert_eq!(queue.pop(2), None);
        assert_eq!(queue.pop(3), Some('a'));
        assert_eq!(queue.pop(6), None);
        assert_eq!(queue.pop(u64::MAX), Some('b'));
        assert_eq!(queue.pop(u64::MAX), None);
    }

    #[test]
    fn a_queue_is_overdue_above_the_limit_of_items_and_above_that_of_bytes() {
        let mut queue = DropQueue::default();
        queue.push(1, 0, ());
        queue.push(2, 0, ());
        assert_eq!(queue.overdue(LIMIT), None);
        queue.push(3, 0, ());
        assert_eq!(queue.overdue(LIMIT), Some(1));
        let mut queue = DropQueue::default();
        queue.push(5, LIMIT.bytes, ());
        assert_eq!(queue.overdue(LIMIT), None);
        queue.push(6, 1, ());
        assert_eq!(queue.overdue(LIMIT), Some(5));
    }

    /// A counter that wraps to a small number never asks for a flush again; one that panics takes the stream down.
    #[test]
    fn host_04_a_counter_near_its_end_stays_there_and_is_right_again_afterwards() {
        let mut queue = DropQueue { items: VecDeque::new(), bytes: u64::MAX - 1 };
        queue.push(1, 100, ());
        assert_eq!(queue.bytes, u64::MAX);
        assert_eq!(queue.overdue(LIMIT), Some(1));
        assert_eq!(queue.pop(1), Some(()));
        assert_eq!(queue.bytes, 0);
        queue.push(2, 100, ());
        assert_eq!(queue.bytes, 100);
        assert_eq!(queue.overdue(LIMIT), None);
    }

    /// Cut to 32 bits, 4 GiB and one byte are one byte.
    #[test]
    fn host_04_an_item_of_more_than_32_bits_counts_in_full() {
        let mut queue = DropQueue::default();
        queue.push(1, (4 << 30) + 1, ());
        assert_eq!(queue.bytes, 4_294_967_297);
        assert_eq!(queue.overdue(Limit { items: 10, bytes: u64::from(u32::MAX) }), Some(1));
    }
}
