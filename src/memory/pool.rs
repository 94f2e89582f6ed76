//! A slot's pool: pages of the driver, divided in constant time, and large pages kept whole.
//!
//! A page remembers the last uses of its free bytes, and a new tenant is born with them: so freed bytes can be handed
//! out again at once, to be used first on whichever slot.

#![forbid(unsafe_code)]

use std::sync::Arc;

use offset_allocator::{Allocation as Block, Allocator};

use crate::backend::{Backend, Contents, Page};
use crate::device::DeviceCore;
use crate::error::Result;
use crate::memory::allocate_page;
use crate::order::{Marks, Uses};

/// Pages are this large unless one tenant needs more.
const PAGE: usize = 2 << 20;

/// Tenants above this have a page to themselves, so that they leave no holes in shared ones.
const LARGE: usize = PAGE / 4;

/// How many free large pages a pool keeps for the next tenant of their size.
const KEPT: usize = 16;

/// What a tenant holds of a pool.
pub(crate) enum Lease {
    /// A block of a shared page.
    Block { slot: u32, page: u64, block: Block, bytes: usize },
    /// A page to itself, kept by the pool afterwards.
    Whole { slot: u32, bytes: usize },
    /// A page to itself, given back to the driver afterwards.
    Dedicated { bytes: usize },
}

impl Lease {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Lease::Block { bytes, .. } | Lease::Whole { bytes, .. } | Lease::Dedicated { bytes } => *bytes,
        }
    }
}

/// Where a new tenant lives.
pub(crate) struct Place<B: Backend> {
    pub(crate) page: Arc<Page<B>>,
    pub(crate) offset: usize,
    pub(crate) lease: Lease,
    pub(crate) history: Marks,
}

pub(crate) struct Pool<B: Backend> {
    shared: Vec<Shared<B>>,
    /// Free large pages, with the uses that their next tenant waits for.
    large: Vec<(Arc<Page<B>>, Marks)>,
    next: u64,
}

struct Shared<B: Backend> {
    id: u64,
    page: Arc<Page<B>>,
    blocks: Allocator<u32>,
    tenants: usize,
    free: usize,
    /// The last uses of bytes that are free now.
    residue: Uses,
}

impl<B: Backend> Default for Pool<B> {
    fn default() -> Self {
        Pool { shared: Vec::new(), large: Vec::new(), next: 0 }
    }
}

impl<B: Backend> Pool<B> {
    pub(crate) fn free_bytes(&self) -> usize {
        let large: usize = self.large.iter().map(|(page, _)| page.bytes).sum();
        large + self.shared.iter().map(|shared| shared.free).sum::<usize>()
    }

    /// A block of any shared page that has one.
    fn block(&mut self, device: &DeviceCore<B>, slot: u32, bytes: usize) -> Option<Place<B>> {
        let granule = device.limits.alignment;
        let units = u32::try_from(bytes / granule).ok()?;
        self.shared.iter_mut().filter(|shared| shared.free >= bytes).find_map(|shared| {
            let block = shared.blocks.allocate(units)?;
            shared.tenants += 1;
            shared.free -= bytes;
            let offset = block.offset as usize * granule;
            shared.residue.prune(|mark| !device.passed(mark));
            let history = shared.residue.history(&(offset..offset + bytes));
            let lease = Lease::Block { slot, page: shared.id, block, bytes };
            Some(Place { page: shared.page.clone(), offset, lease, history })
        })
    }

    /// The smallest kept page that fits without wasting more than a quarter.
    fn kept(&mut self, slot: u32, bytes: usize) -> Option<Place<B>> {
        let fits = |page: &Page<B>| page.bytes >= bytes && page.bytes - bytes <= bytes / 4;
        let candidates = self.large.iter().enumerate().filter(|(_, (page, _))| fits(page));
        let (index, _) = candidates.min_by_key(|(_, (page, _))| page.bytes)?;
        let (page, history) = self.large.swap_remove(index);
        let lease = Lease::Whole { slot, bytes: page.bytes };
        Some(Place { page, offset: 0, lease, history })
    }

    fn add(&mut self, page: Arc<Page<B>>, granule: usize) {
        let units = u32::try_from(page.bytes / granule).unwrap_or(u32::MAX);
        let blocks = Allocator::with_max_allocs(units, units.saturating_add(2));
        let (id, free) = (self.next, page.bytes);
        self.next += 1;
        self.shared.push(Shared { id, page, blocks, tenants: 0, free, residue: Uses::default() });
    }
}

/// Bytes from the pool of `slot`; `bytes` is a multiple of the device's alignment.
pub(crate) fn take<B: Backend>(device: &DeviceCore<B>, slot: u32, bytes: usize) -> Result<Place<B>> {
    let pool = &device.slot(slot).pool;
    if bytes > LARGE {
        if let Some(place) = pool.lock().kept(slot, bytes) {
            return Ok(place);
        }
        let page = allocate_page(device, slot, bytes)?;
        let lease = Lease::Whole { slot, bytes: page.bytes };
        return Ok(Place { page, offset: 0, lease, history: Marks::default() });
    }
    if let Some(place) = pool.lock().block(device, slot, bytes) {
        return Ok(place);
    }
    match allocate_page(device, slot, PAGE) {
        Ok(page) => {
            let mut pool = pool.lock();
            pool.add(page, device.limits.alignment);
            let place = pool.block(device, slot, bytes);
            drop(pool);
            place.map_or_else(|| take_dedicated(device, slot, bytes), Ok)
        }
        // Where a whole page is too much, the bytes alone may still be had.
        Err(crate::Error::OutOfMemory { .. }) => take_dedicated(device, slot, bytes),
        Err(error) => Err(error),
    }
}

/// A page to itself, that no pool keeps.
pub(crate) fn take_dedicated<B: Backend>(
    device: &DeviceCore<B>,
    slot: u32,
    bytes: usize,
) -> Result<Place<B>> {
    let page = allocate_page(device, slot, bytes)?;
    let lease = Lease::Dedicated { bytes: page.bytes };
    Ok(Place { page, offset: 0, lease, history: Marks::default() })
}

pub(crate) fn give<B: Backend>(device: &DeviceCore<B>, contents: &Contents<B>, lease: Lease, history: Marks) {
    match lease {
        Lease::Dedicated { .. } => device.memory.graveyard.condemn(contents.page.clone(), history),
        Lease::Whole { slot, .. } => {
            let mut pool = device.slot(slot).pool.lock();
            pool.large.push((contents.page.clone(), history));
            if pool.large.len() > KEPT {
                let (page, history) = pool.large.remove(0);
                device.memory.graveyard.condemn(page, history);
            }
        }
        Lease::Block { slot, page, block, bytes } => {
            let mut pool = device.slot(slot).pool.lock();
            if let Some(shared) = pool.shared.iter_mut().find(|shared| shared.id == page) {
                shared.blocks.free(block);
                shared.tenants -= 1;
                shared.free += bytes;
                shared.residue.replace(contents.offset..contents.offset + bytes, history);
            }
        }
    }
}

/// Sends every page that has no tenant to the graveyard.
pub(crate) fn condemn_free<B: Backend>(device: &DeviceCore<B>, pool: &mut Pool<B>) {
    let graveyard = &device.memory.graveyard;
    pool.large.drain(..).for_each(|(page, history)| graveyard.condemn(page, history));
    pool.shared.retain(|shared| {
        if shared.tenants == 0 {
            graveyard.condemn(shared.page.clone(), shared.residue.history(&(0..shared.page.bytes)));
        }
        shared.tenants > 0
    });
}
