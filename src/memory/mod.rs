//! Device memory: allocations, the pools that they come from, and memory that waits to be given back.

#![forbid(unsafe_code)]

pub(crate) mod allocation;
pub(crate) mod pool;
pub(crate) mod reaper;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::backend::{Backend, Contents, Page, Waiter};
use crate::device::DeviceCore;
use crate::error::{Error, Result};
use crate::memory::pool::Lease;
use crate::memory::reaper::Graveyard;
use crate::order::Marks;
use crate::taint::Taint;

/// Where the buffers of a stream come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AllocationMode {
    /// A part of a page that the slot's pool keeps: the fast way, for buffers that come and go.
    #[default]
    Pooled,
    /// A page of its own, given back to the driver as soon as it is free: for few, large, long-lived buffers.
    Dedicated,
}

/// What a device holds, as one moment saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUsage {
    /// Bytes held from the driver.
    pub held: usize,
    /// Bytes of those that belong to live buffers and to the arenas of graphs, with what alignment adds.
    pub in_use: usize,
    /// Bytes of those that wait for work in flight before they go back to the driver.
    pub pending: usize,
}

/// A device's memory: what it holds, and what waits to be given back.
pub(crate) struct Memory<B: Backend> {
    held: AtomicUsize,
    in_use: AtomicUsize,
    limit: Option<usize>,
    pub(crate) graveyard: Arc<Graveyard<B>>,
}

/// Bytes for one tenant, with the history that they bring.
pub(crate) struct Reserved<B: Backend> {
    pub(crate) contents: Arc<Contents<B>>,
    pub(crate) lease: Lease,
    pub(crate) history: Marks,
}

/// How long a reservation waits for work in flight to give its memory back before it fails.
const PATIENCE: Duration = Duration::from_secs(1);

impl<B: Backend> Memory<B> {
    pub(crate) fn new(limit: Option<usize>) -> Self {
        let (held, in_use) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Memory { held, in_use, limit, graveyard: Graveyard::new() }
    }

    pub(crate) fn usage(&self) -> MemoryUsage {
        MemoryUsage {
            held: self.held.load(Ordering::Relaxed),
            in_use: self.in_use.load(Ordering::Relaxed),
            pending: self.graveyard.bytes(),
        }
    }

    fn tenant(&self, bytes: usize, moved_in: bool) {
        if moved_in {
            self.in_use.fetch_add(bytes, Ordering::Relaxed);
        } else {
            self.in_use.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
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
    if bytes > limits.max_buffer {
        return Err(Error::BufferTooBig { requested: bytes, limit: limits.max_buffer });
    }
    let rounded = bytes.next_multiple_of(limits.alignment);
    let place = match mode {
        AllocationMode::Pooled => pool::take(device, slot, rounded)?,
        AllocationMode::Dedicated => pool::take_dedicated(device, slot, rounded)?,
    };
    // What the lease gives back one day: a kept page may be larger than what was asked for.
    device.memory.tenant(place.lease.bytes(), true);
    let contents = Contents { page: place.page, offset: place.offset, taint: Taint::default() };
    Ok(Reserved { contents: Arc::new(contents), lease: place.lease, history: place.history })
}

/// Gives the bytes of a tenant back to where they came from. Never calls the driver, never waits.
pub(crate) fn release<B: Backend>(
    device: &DeviceCore<B>,
    contents: &Contents<B>,
    lease: Lease,
    history: Marks,
) {
    device.memory.tenant(lease.bytes(), false);
    pool::give(device, contents, lease, history);
}

/// A page of the driver's, after reclaiming what can be if there is none at first.
pub(crate) fn allocate_page<B: Backend>(
    device: &DeviceCore<B>,
    slot: u32,
    bytes: usize,
) -> Result<Arc<Page<B>>> {
    for attempt in [Attempt::First, Attempt::Last] {
        if hold(device, bytes) {
            match device.backend.allocate(bytes) {
                Ok(memory) => return Ok(Arc::new(Page { memory, bytes })),
                Err(fault) => {
                    device.memory.held.fetch_sub(bytes, Ordering::Relaxed);
                    if !fault.is_memory() {
                        return Err(device.poison.absorb(fault));
                    }
                }
            }
        }
        if attempt == Attempt::First {
            reclaim(device);
        }
    }
    device.poison.check()?;
    let held = device.memory.held.load(Ordering::Relaxed);
    let free_in_pool = device.slot(slot).pool.lock().free_bytes();
    Err(Error::OutOfMemory { requested: bytes, held, free_in_pool, limit: device.memory.limit })
}

#[derive(PartialEq, Eq)]
enum Attempt {
    First,
    Last,
}

/// Counts `bytes` as held, unless that would exceed the limit.
fn hold<B: Backend>(device: &DeviceCore<B>, bytes: usize) -> bool {
    let limit = device.memory.limit.unwrap_or(usize::MAX);
    let grow = |held: usize| held.checked_add(bytes).filter(|held| *held <= limit);
    device.memory.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow).is_ok()
}

/// Gives a page back to the driver. Everything that was enqueued on it has passed.
pub(crate) fn free_page<B: Backend>(device: &DeviceCore<B>, page: &Page<B>) {
    device.memory.held.fetch_sub(page.bytes, Ordering::Relaxed);
    if device.poison.is_set() {
        return;
    }
    if let Err(fault) = device.backend.free(&page.memory)
        && fault.is_sticky()
    {
        device.poison.set(fault);
    }
}

/// Gives everything that is free back to the driver, as far as work in flight lets it.
pub(crate) fn cleanup<B: Backend>(device: &DeviceCore<B>) {
    device.slots.iter().for_each(|slot| pool::condemn_free(device, &mut slot.pool.lock()));
    device.memory.graveyard.bury(device);
}

/// Gives back what is free, waiting a while for work in flight that holds it.
fn reclaim<B: Backend>(device: &DeviceCore<B>) {
    cleanup(device);
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
    device.memory.graveyard.bury(device);
}

#[cfg(test)]
mod tests {
    use crate::prelude::*;

    /// A kept page that served a smaller tenant was taken off in full, so that the count fell below zero.
    #[test]
    fn a_kept_page_leaves_the_count_as_it_entered_it() {
        let device = Device::host().unwrap();
        let mut stream = device.stream().unwrap();
        drop(stream.alloc_scratch::<u8>(1 << 20).unwrap());
        let smaller = stream.alloc_scratch::<u8>((1 << 20) - (1 << 16)).unwrap();
        assert_eq!(device.memory_usage().held, 1 << 20);
        assert_eq!(device.memory_usage().in_use, 1 << 20);
        drop(smaller);
        assert_eq!(device.memory_usage().in_use, 0);
    }
}
