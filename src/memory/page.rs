//! A page that tenants share, and the list of who they are.

#![forbid(unsafe_code)]

use std::sync::{Arc, Weak};

use offset_allocator::{Allocation as Block, Allocator};

use crate::backend::{Backend, Contents, Page};
use crate::memory::allocation::Allocation;
use crate::memory::sizes;
use crate::order::{Mark, Marks, Uses};

/// A page of the driver, divided in constant time.
///
/// It remembers the last uses of its free bytes, and a new tenant is born with them: so freed bytes are handed out
/// again at once, to be used first on whichever slot, and no fence is asked.
pub(crate) struct SharedPage<B: Backend> {
    page: Arc<Page<B>>,
    blocks: Allocator<u32>,
    granule: usize,
    pub(crate) tenants: Tenants<B>,
    free: usize,
    /// While it is being emptied it takes no new tenant.
    pub(crate) closed: bool,
    /// The last uses of bytes that are free now.
    residue: Uses,
    /// Contents that nobody refers to any more, for the next tenants.
    spare: Vec<Arc<Contents<B>>>,
}

/// A tenant's part of a shared page.
pub(crate) struct Taken<B: Backend> {
    pub(crate) contents: Arc<Contents<B>>,
    pub(crate) block: Block,
    pub(crate) tenant: u32,
    pub(crate) history: Marks,
}

impl<B: Backend> SharedPage<B> {
    /// How many tenants one page has at most: the bookkeeping of a page is made for all of them at once.
    const TENANTS: u32 = 1 << 15;

    /// How many pieces the memory of free bytes has at most.
    const PIECES: usize = 64;

    const SPARE: usize = 32;

    pub(crate) fn new(page: Arc<Page<B>>, granule: usize) -> Self {
        let units = u32::try_from(page.bytes / granule).unwrap_or(u32::MAX);
        let blocks = Allocator::with_max_allocs(units, units.saturating_add(2).min(Self::TENANTS));
        let (free, tenants, residue) = (page.bytes, Tenants::default(), Uses::default());
        SharedPage { page, blocks, granule, tenants, free, closed: false, residue, spare: Vec::new() }
    }

    pub(crate) fn page(&self) -> &Arc<Page<B>> {
        &self.page
    }

    pub(crate) fn free_bytes(&self) -> usize {
        self.free
    }

    pub(crate) fn used_bytes(&self) -> usize {
        self.page.bytes - self.free
    }

    /// The most that one tenant could still have, as far as the blocks' bins tell.
    pub(crate) fn largest_free(&self) -> usize {
        (self.blocks.storage_report().largest_free_region as usize)
            .saturating_mul(self.granule)
            .min(self.free)
    }

    /// Whether it may take a tenant of `bytes`, if there is room.
    pub(crate) fn welcomes(&self, bytes: usize, fit: Room) -> bool {
        !self.closed && self.free >= bytes && (fit == Room::Any || sizes::shares(bytes, self.page.bytes))
    }

    /// A part of the page; `bytes` is a multiple of the granule.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Taken<B>> {
        let block = self.blocks.allocate(u32::try_from(bytes / self.granule).ok()?)?;
        self.free -= bytes;
        let offset = block.offset as usize * self.granule;
        let history = self.residue.history(&(offset..offset + bytes));
        let contents = self.contents(offset);
        Some(Taken { contents, block, tenant: self.tenants.insert(), history })
    }

    fn contents(&mut self, offset: usize) -> Arc<Contents<B>> {
        if let Some(mut contents) = self.spare.pop()
            && let Some(inner) = Arc::get_mut(&mut contents)
        {
            inner.settle_at(offset);
            return contents;
        }
        Contents::new(self.page.clone(), offset)
    }

    /// Takes a part back, with the uses that its next tenant must wait for. `passed` is asked only now and then.
    pub(crate) fn give(
        &mut self,
        mut contents: Arc<Contents<B>>,
        taken: (Block, u32, usize),
        history: Marks,
        passed: impl Fn(Mark) -> bool,
    ) {
        let (block, tenant, bytes) = taken;
        self.blocks.free(block);
        self.tenants.remove(tenant);
        self.free += bytes;
        self.residue.replace(contents.offset..contents.offset + bytes, history);
        if self.residue.pieces() > Self::PIECES {
            self.residue.prune(|mark| !passed(mark));
            if self.residue.pieces() > Self::PIECES {
                self.residue.coarsen();
            }
        }
        if self.spare.len() < Self::SPARE
            && let Some(inner) = Arc::get_mut(&mut contents)
        {
            inner.taint.reset();
            self.spare.push(contents);
        }
    }

    /// What must have passed before the page may go back to the driver.
    pub(crate) fn history(&self) -> Marks {
        self.residue.history(&(0..self.page.bytes))
    }
}

/// Which pages a tenant may go to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// Those that are a good deal larger than it is.
    Fitting,
    /// Any that have room: memory is short.
    Any,
}

/// Who lives on a page: found by number, so that coming and going cost the same for any number of tenants.
pub(crate) struct Tenants<B: Backend> {
    entries: Vec<Entry<B>>,
    vacant: Option<u32>,
    count: usize,
}

enum Entry<B: Backend> {
    /// Nobody; the next vacant one.
    Vacant(Option<u32>),
    /// Somebody; empty until the allocation was introduced.
    Held(Weak<Allocation<B>>),
}

impl<B: Backend> Default for Tenants<B> {
    fn default() -> Self {
        Tenants { entries: Vec::new(), vacant: None, count: 0 }
    }
}

impl<B: Backend> Tenants<B> {
    pub(crate) fn insert(&mut self) -> u32 {
        self.count += 1;
        let held = Entry::Held(Weak::new());
        if let Some(index) = self.vacant
            && let Some(entry) = self.entries.get_mut(index as usize)
        {
            if let Entry::Vacant(next) = entry {
                self.vacant = *next;
            }
            *entry = held;
            return index;
        }
        self.entries.push(held);
        (self.entries.len() - 1) as u32
    }

    pub(crate) fn introduce(&mut self, index: u32, tenant: Weak<Allocation<B>>) {
        if let Some(Entry::Held(held)) = self.entries.get_mut(index as usize) {
            *held = tenant;
        }
    }

    pub(crate) fn remove(&mut self, index: u32) {
        if let Some(entry) = self.entries.get_mut(index as usize)
            && matches!(entry, Entry::Held(_))
        {
            *entry = Entry::Vacant(self.vacant.replace(index));
            self.count -= 1;
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Who can be reached: those who were introduced and are not on their way out.
    pub(crate) fn alive(&self) -> impl Iterator<Item = Arc<Allocation<B>>> + '_ {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Held(tenant) => tenant.upgrade(),
            Entry::Vacant(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::host::Host;
    use crate::backend::host::memory::HostMemory;
    use crate::backend::sealed::Driver;

    /// A record that kept the address of the tenant before would send every launch to somebody else's bytes.
    #[test]
    fn what_is_known_of_a_tenants_place_is_of_its_own_place_whoever_had_the_record_before() {
        let page = Arc::new(Page::<Host> { memory: HostMemory::zeroed(4096).unwrap(), bytes: 4096 });
        let mut shared = SharedPage::new(page.clone(), 256);
        let (first, second) = (shared.take(512).unwrap(), shared.take(256).unwrap());
        for taken in [second, first] {
            let bytes = if taken.contents.offset == 0 { 512 } else { 256 };
            shared.give(taken.contents, (taken.block, taken.tenant, bytes), Marks::default(), |_| true);
        }
        let (again, next) = (shared.take(256).unwrap(), shared.take(1024).unwrap());
        assert_ne!(again.contents.offset, next.contents.offset);
        for contents in [&again.contents, &next.contents] {
            assert_eq!(contents.room, page.bytes - contents.offset);
            assert_eq!(Some(contents.address), Host::address(&page.memory, contents.offset));
        }
    }
}
