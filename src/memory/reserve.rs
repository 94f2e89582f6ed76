//! Finding bytes for a new tenant, and giving up what is free when there are none.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use crate::backend::{Backend, Page, Waiter};
use crate::device::DeviceCore;
use crate::error::{Error, Result};
use crate::memory::allocation::Allocation;
use crate::memory::page::Room;
use crate::memory::pool::{self, Fit, Lease};
use crate::memory::{AllocationMode, Reserved, cleanup, compaction, sizes};
use crate::order::Marks;

/// How long a reservation waits for work in flight to give its memory back before it goes on without.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often a reservation finds room that others take before it fails.
const ROUNDS: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    First,
    /// Everything that could be given back was.
    Last,
}

/// Bytes for a new tenant of `slot`.
///
/// # Errors
/// `BufferTooBig` and `OutOfMemory`; nothing is held that was not before.
pub(crate) fn reserve<B: Backend>(
    device: &DeviceCore<B>,
    slot: u32,
    bytes: usize,
    mode: AllocationMode,
) -> Result<Reserved<B>> {
    let limits = &device.limits;
    // What no attempt could ever serve fails at once, and nobody's cache is given up for it.
    if bytes > limits.max_buffer {
        return Err(Error::BufferTooBig { requested: bytes, limit: limits.max_buffer });
    }
    let rounded = bytes.next_multiple_of(limits.alignment);
    if let Some(reserved) = try_reserve(device, slot, rounded, mode, Attempt::First)? {
        return Ok(reserved);
    }
    for _ in 0..ROUNDS {
        // Nobody moves tenants before this has looked at what was found.
        let _alone = reclaim(device, rounded);
        if let Some(reserved) = try_reserve(device, slot, rounded, mode, Attempt::Last)? {
            return Ok(reserved);
        }
        if mode == AllocationMode::Pooled
            && let Some(reserved) = elsewhere(device, slot, rounded)
        {
            return Ok(reserved);
        }
        // Else it was only that others were faster.
        if !fits(device, rounded) {
            break;
        }
    }
    device.poison.check()?;
    let pool = device.slot(slot).pool.lock();
    let (free_in_pool, largest_free) = (pool.free_bytes(), pool.largest_free());
    drop(pool);
    let held = device.memory.held.load(Ordering::Relaxed);
    let limit = device.memory.limit;
    Err(Error::OutOfMemory { requested: rounded, held, free_in_pool, largest_free, limit })
}

/// An allocation of bytes that are there now; `tenant` makes it, with a number of its own, unless there is one that
/// waits for a tenant, whose bytes are marked as `unwritten`.
///
/// # Errors
/// As for [`reserve`].
pub(crate) fn reserve_for<B: Backend>(
    device: &Arc<DeviceCore<B>>,
    slot: u32,
    bytes: usize,
    mode: AllocationMode,
    unwritten: Option<&Arc<Error>>,
    tenant: impl Fn(Reserved<B>, u64) -> Arc<Allocation<B>>,
) -> Result<Arc<Allocation<B>>> {
    let alignment = device.limits.alignment;
    if mode == AllocationMode::Pooled
        && let Some(rounded) = bytes.checked_next_multiple_of(alignment)
    {
        let mut pool = device.slot(slot).pool.lock();
        if let Some(alloc) = pool.unstash(bytes) {
            let id = pool.next_allocation(slot);
            drop(pool);
            alloc.revive(device, (slot, id), unwritten);
            return Ok(alloc);
        }
        if let Some(reserved) = pool.block(slot, rounded, Room::Fitting) {
            let lease = reserved.lease;
            let alloc = tenant(reserved, pool.next_allocation(slot));
            pool.introduce(&lease, Arc::downgrade(&alloc));
            return Ok(alloc);
        }
    }
    let reserved = reserve(device, slot, bytes, mode)?;
    let lease = reserved.lease;
    let alloc = tenant(reserved, device.next_allocation());
    introduce(device, &lease, &alloc);
    Ok(alloc)
}

/// Tells the pool of `lease` who its tenant is.
pub(crate) fn introduce<B: Backend>(device: &DeviceCore<B>, lease: &Lease, tenant: &Arc<Allocation<B>>) {
    if let Lease::Block { slot, .. } | Lease::Whole { slot, .. } = lease {
        device.slot(*slot).pool.lock().introduce(lease, Arc::downgrade(tenant));
    }
}

/// Looks for `bytes` bytes, which are a multiple of the device's alignment; `None` if there are none.
fn try_reserve<B: Backend>(
    device: &DeviceCore<B>,
    slot: u32,
    bytes: usize,
    mode: AllocationMode,
    attempt: Attempt,
) -> Result<Option<Reserved<B>>> {
    match mode {
        AllocationMode::Pooled => pooled(device, slot, bytes, attempt),
        AllocationMode::Persistent => whole(device, slot, bytes, Fit::Exact, [bytes]),
        AllocationMode::Dedicated => dedicated(device, bytes),
    }
}

fn pooled<B: Backend>(
    device: &DeviceCore<B>,
    slot: u32,
    bytes: usize,
    attempt: Attempt,
) -> Result<Option<Reserved<B>>> {
    let room = if attempt == Attempt::First { Room::Fitting } else { Room::Any };
    let block = || device.slot(slot).pool.lock().block(slot, bytes, room);
    if let Some(reserved) = block() {
        return Ok(Some(reserved));
    }
    // What waits for tenants of other sizes goes before a new page does.
    if pool::unstash_all(device, slot)
        && let Some(reserved) = block()
    {
        return Ok(Some(reserved));
    }
    let next = sizes::next_shared(device.slot(slot).pool.lock().shared_held());
    if !sizes::shares(bytes, next) {
        let roomy = sizes::whole(bytes, device.limits.alignment).min(device.limits.max_buffer.max(bytes));
        let exact = (roomy > bytes).then_some(bytes);
        return whole(device, slot, bytes, Fit::Close, std::iter::once(roomy).chain(exact));
    }
    let fitting = |size: &usize| *size <= next && sizes::shares(bytes, *size);
    for size in sizes::SHARED.into_iter().rev().filter(fitting) {
        let Some(page) = page(device, size)? else { continue };
        let mut pool = device.slot(slot).pool.lock();
        let index = pool.add_shared(page, device.limits.alignment);
        let block = pool.block_of(index, slot, bytes, Room::Fitting);
        // Only a race for the page that was just added leaves none.
        return Ok(block.or_else(|| pool.block(slot, bytes, Room::Any)));
    }
    // Where a whole page is too much, the bytes alone may still be had.
    let [smallest, ..] = sizes::SHARED;
    if attempt == Attempt::First && device.memory.limit.is_none_or(|limit| limit >= smallest) {
        return Ok(None);
    }
    dedicated(device, bytes)
}

/// A block of another slot's pool: free bytes are no use to the device as long as their own slot alone may have them.
fn elsewhere<B: Backend>(device: &DeviceCore<B>, slot: u32, bytes: usize) -> Option<Reserved<B>> {
    let mut others = (0..device.slots.len() as u32).filter(|other| *other != slot);
    others.find_map(|other| {
        pool::unstash_all(device, other);
        device.slot(other).pool.lock().block(other, bytes, Room::Any)
    })
}

/// A page to itself, which the pool keeps afterwards: one that it kept, or a new one of the first of `page_sizes` to
/// be had.
fn whole<B: Backend>(
    device: &DeviceCore<B>,
    slot: u32,
    bytes: usize,
    fit: Fit,
    page_sizes: impl IntoIterator<Item = usize>,
) -> Result<Option<Reserved<B>>> {
    let pool = &device.slot(slot).pool;
    if let Some(reserved) = pool.lock().kept(slot, bytes, fit) {
        return Ok(Some(reserved));
    }
    for size in page_sizes {
        if let Some(page) = page(device, size)? {
            let (reserved, leaving) = pool.lock().add_whole(slot, page, fit);
            device.memory.graveyard.condemn_all(leaving);
            return Ok(Some(reserved));
        }
    }
    Ok(None)
}

/// A page to itself, that no pool keeps.
fn dedicated<B: Backend>(device: &DeviceCore<B>, bytes: usize) -> Result<Option<Reserved<B>>> {
    let Some(page) = page(device, bytes)? else { return Ok(None) };
    device.memory.dedicated.enter(bytes);
    Ok(Some(Reserved::new(page, Lease::Dedicated { bytes }, Marks::default())))
}

/// A page of the driver's; `None` if the limit or the driver says that there is no memory for it.
fn page<B: Backend>(device: &DeviceCore<B>, bytes: usize) -> Result<Option<Arc<Page<B>>>> {
    if !hold(device, bytes) {
        return Ok(None);
    }
    match device.backend.allocate(bytes) {
        Ok(memory) => Ok(Some(Arc::new(Page { memory, bytes }))),
        Err(fault) => {
            device.memory.held.fetch_sub(bytes, Ordering::Relaxed);
            if fault.is_memory() { Ok(None) } else { Err(device.poison.absorb(fault)) }
        }
    }
}

/// Counts `bytes` as held, unless that would exceed the limit.
fn hold<B: Backend>(device: &DeviceCore<B>, bytes: usize) -> bool {
    let limit = device.memory.limit.unwrap_or(usize::MAX);
    let grow = |held: usize| held.checked_add(bytes).filter(|held| *held <= limit);
    device.memory.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow).is_ok()
}

/// Finds room for `bytes` bytes: gives back what is free, and if that is not enough, moves tenants together. Returns what
/// keeps others from doing so until the bytes are taken.
fn reclaim<B: Backend>(device: &DeviceCore<B>, bytes: usize) -> Option<MutexGuard<'_, ()>> {
    release_free(device);
    if fits(device, bytes) {
        return None;
    }
    let alone = compaction::alone(device);
    // Whatever comes of it: pages that it emptied before the driver broke it off, or that others did, wait to go.
    let _ = compaction::compact(device, &device.by);
    if device.memory.graveyard.pages() > 0 {
        release_free(device);
    }
    alone
}

/// Whether the limit, if that is what stands in the way, leaves room for `bytes` more; a driver does not tell.
fn fits<B: Backend>(device: &DeviceCore<B>, bytes: usize) -> bool {
    let held = device.memory.held.load(Ordering::Relaxed);
    device.memory.limit.is_some_and(|limit| held.saturating_add(bytes) <= limit)
}

/// Gives back what is free, waiting a while for work in flight that holds it. What the driver refuses to take stays
/// held, and that is what the reservation reports.
fn release_free<B: Backend>(device: &DeviceCore<B>) {
    let _ = cleanup(device);
    let deadline = Instant::now() + PATIENCE;
    for mark in device.memory.graveyard.marks().iter() {
        let queue = &device.slot(mark.slot).queue;
        match device.backend.block(queue, mark.seq, Waiter::Anyone, Some(deadline)) {
            Ok(true) => {}
            // One that takes too long is no reason to leave what others have let go of.
            Ok(false) => break,
            Err(fault) => {
                // The reservation reports it, if the device is lost by it.
                device.poison.absorb(fault);
                break;
            }
        }
    }
    let _ = device.memory.graveyard.bury(device);
}
