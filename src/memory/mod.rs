//! Device memory: allocations, the pools that they come from, and memory that waits to be given back.

#![forbid(unsafe_code)]

#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) mod adoption;
pub(crate) mod allocation;
pub(crate) mod compaction;
pub(crate) mod drops;
pub(crate) mod hold;
pub(crate) mod page;
pub(crate) mod pool;
pub(crate) mod reaper;
pub(crate) mod report;
pub(crate) mod reserve;
pub(crate) mod sizes;
pub(crate) mod staging;
pub(crate) mod tables;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::backend::{Backend, Contents, Page};
use crate::device::DeviceCore;
use crate::error::Result;
use crate::memory::pool::Lease;
use crate::memory::reaper::Graveyard;
use crate::memory::report::Arena;
use crate::order::Marks;

/// Where the buffers of a stream come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AllocationMode {
    /// A part of a page that the slot's pool keeps: the fast way, for buffers that come and go.
    #[default]
    Pooled,
    /// A page of exactly its size, which the pool keeps for the next buffer of that size: for weights, which are loaded
    /// once, or again and again in the same sizes.
    Persistent,
    /// A page of its own, given back to the driver as soon as it is free: for few, large, long-lived buffers.
    Dedicated,
}

/// What a device holds, as one moment saw it; [`Device::memory_report`](crate::Device::memory_report) has the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUsage {
    /// Bytes held from the driver.
    pub held: usize,
    /// Bytes of those that belong to live buffers and to the arenas of graphs, with what alignment adds.
    pub in_use: usize,
    /// Bytes of those that wait for work in flight before they go back to the driver.
    pub pending: usize,
    /// Bytes of other libraries' memory that buffers were made of: no part of what is held from the driver, and under no
    /// limit.
    pub adopted: usize,
    /// Bytes of host memory that transfers keep until the device is done with them: what was written, and where reads
    /// land. They are no part of what is held from the driver. What it has done is found out by the next operation of
    /// the slot, by a wait, and by a cleanup.
    pub pending_host: usize,
}

/// A device's memory: what it holds, and what waits to be given back.
pub(crate) struct Memory<B: Backend> {
    held: AtomicUsize,
    /// Pages that belong to one tenant and to no pool.
    pub(crate) dedicated: Occupied,
    /// Memory of other libraries, which is not counted as held.
    pub(crate) adopted: Occupied,
    limit: Option<usize>,
    pub(crate) graveyard: Arc<Graveyard<B>>,
    /// Held by who moves tenants together (see [`compaction::alone`]).
    pub(crate) moving: Mutex<()>,
    /// What each graph that lives has of its own.
    pub(crate) arenas: Mutex<Vec<Arena>>,
    graphs: AtomicU64,
}

/// Tenants and their bytes, counted.
#[derive(Debug, Default)]
pub(crate) struct Occupied {
    tenants: AtomicUsize,
    bytes: AtomicUsize,
}

impl Occupied {
    pub(crate) fn enter(&self, bytes: usize) {
        self.tenants.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self, bytes: usize) {
        self.tenants.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn tenants(&self) -> usize {
        self.tenants.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Bytes for one tenant, with the history that they bring.
pub(crate) struct Reserved<B: Backend> {
    pub(crate) contents: Arc<Contents<B>>,
    pub(crate) lease: Lease,
    pub(crate) history: Marks,
}

impl<B: Backend> Memory<B> {
    pub(crate) fn new(limit: Option<usize>) -> Self {
        Memory {
            held: AtomicUsize::new(0),
            dedicated: Occupied::default(),
            adopted: Occupied::default(),
            limit,
            graveyard: Graveyard::new(),
            moving: Mutex::new(()),
            arenas: Mutex::default(),
            graphs: AtomicU64::new(0),
        }
    }

    /// A number for a new graph.
    pub(crate) fn next_graph(&self) -> u64 {
        // Only uniqueness matters.
        self.graphs.fetch_add(1, Ordering::Relaxed)
    }
}

/// What `device` holds.
pub(crate) fn usage<B: Backend>(device: &DeviceCore<B>) -> MemoryUsage {
    let pooled: usize = device.slots.iter().map(|slot| slot.pool.lock().in_use).sum();
    MemoryUsage {
        held: device.memory.held.load(Ordering::Relaxed),
        in_use: pooled + device.memory.dedicated.bytes(),
        pending: device.memory.graveyard.bytes(),
        adopted: device.memory.adopted.bytes(),
        pending_host: drops::pending_bytes(device),
    }
}

/// Gives a page back to the driver. Everything that was enqueued on it has passed.
///
/// # Errors
/// What the driver says; the page is still held. A lost device takes nothing back, and holds nothing.
pub(crate) fn free_page<B: Backend>(device: &DeviceCore<B>, page: &Page<B>) -> Result<()> {
    if !device.poison.is_set() {
        device.backend.free(&page.memory).map_err(|fault| device.poison.absorb(fault))?;
    }
    device.memory.held.fetch_sub(page.bytes, Ordering::Relaxed);
    Ok(())
}

/// Gives everything that is free back to the driver, as far as work in flight lets it.
///
/// # Errors
/// The first refusal of the driver; what it refused stays held, and is offered again.
pub(crate) fn cleanup<B: Backend>(device: &DeviceCore<B>) -> Result<()> {
    tables::trim(device);
    let graveyard = &device.memory.graveyard;
    for (index, slot) in (0u32..).zip(&device.slots) {
        pool::unstash_all(device, index);
        let removed = slot.pool.lock().remove_free();
        graveyard.condemn_all(removed);
    }
    drops::release_all(device);
    device.staging.trim();
    graveyard.bury(device)
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
    /// Shared pages grew with all that a pool held, so that beside a few large buffers a small one took 8 MiB, and
    /// kept them for as long as a graph pinned it.
    #[test]
    fn large_buffers_make_no_large_pages_for_small_ones() {
        let device = Device::host().unwrap();
        let mut stream = device.stream().unwrap();
        let _large: Vec<_> = (0..8).map(|_| stream.alloc_scratch::<u8>(16 << 20).unwrap()).collect();
        let before = device.memory_usage().held;
        let _small = stream.alloc_scratch::<u8>(1000).unwrap();
        assert_eq!(device.memory_usage().held - before, 2 << 20);
    }
}
