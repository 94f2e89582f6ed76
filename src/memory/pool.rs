//! A slot's pool: shared pages, and pages that one tenant has to itself.

#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::sync::{Arc, Weak};

use offset_allocator::Allocation as Block;

use crate::backend::{Backend, Contents, Page};
use crate::device::DeviceCore;
use crate::memory::Reserved;
use crate::memory::allocation::Allocation;
use crate::memory::page::{Room, SharedPage, Taken, Tenants};
use crate::order::Marks;

/// How many free whole pages a pool keeps for the next tenant of their size.
const KEPT: usize = 16;

/// How many allocations without a tenant a pool keeps whole.
const STASHED: usize = 16;

/// What a tenant holds of a pool.
#[derive(Clone, Copy)]
pub(crate) enum Lease {
    /// A block of a shared page.
    Block { slot: u32, page: u32, tenant: u32, block: Block, bytes: usize },
    /// A page to itself, kept by the pool afterwards.
    Whole { slot: u32, tenant: u32, bytes: usize, fit: Fit },
    /// A page to itself, given back to the driver afterwards.
    Dedicated { bytes: usize },
    /// Somebody else's memory, which goes back to them.
    #[cfg_attr(
        not(any(feature = "cuda", feature = "wgpu")),
        allow(dead_code, reason = "only a backend with neighbours makes one")
    )]
    Adopted { bytes: usize },
}

/// Which tenants a kept page is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Those of about its size.
    Close,
    /// Those of exactly its size.
    Exact,
}

impl Lease {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Lease::Block { bytes, .. } | Lease::Whole { bytes, .. } => *bytes,
            Lease::Dedicated { bytes } | Lease::Adopted { bytes } => *bytes,
        }
    }
}

pub(crate) struct Pool<B: Backend> {
    /// By number, which a page keeps for as long as it has tenants: cleaning up renumbers nothing.
    pub(crate) shared: Vec<Option<SharedPage<B>>>,
    /// The page that took the last tenant.
    latest: usize,
    /// Who has a page to itself.
    pub(crate) whole: Tenants<B>,
    kept: Vec<Kept<B>>,
    /// Allocations without a tenant, whole: for the next one of their size.
    stash: Vec<Stashed<B>>,
    /// Bytes of all its pages, and of those that tenants have.
    pub(crate) held: usize,
    pub(crate) in_use: usize,
    /// Bytes of the pages that one tenant has to itself, now and at most since the last cleanup.
    whole_in_use: usize,
    whole_peak: usize,
    allocations: u64,
}

/// An allocation without a tenant, and the bytes of its lease.
struct Stashed<B: Backend> {
    alloc: Arc<Allocation<B>>,
    leased: usize,
}

/// Pages that leave a pool, and what must have passed before the driver gets them.
pub(crate) type Leaving<B> = Vec<(Arc<Page<B>>, Marks)>;

/// A whole page without a tenant.
struct Kept<B: Backend> {
    page: Arc<Page<B>>,
    fit: Fit,
    /// What its next tenant waits for.
    history: Marks,
}

impl<B: Backend> Default for Pool<B> {
    fn default() -> Self {
        let (shared, kept, stash) = (Vec::new(), Vec::new(), Vec::new());
        let whole = Tenants::default();
        Pool {
            shared,
            latest: 0,
            whole,
            kept,
            stash,
            held: 0,
            in_use: 0,
            whole_in_use: 0,
            whole_peak: 0,
            allocations: 0,
        }
    }
}

impl<B: Backend> Pool<B> {
    /// Every page that is kept or has a tenant with a page to itself.
    pub(crate) fn whole_pages(&self) -> usize {
        self.whole.count() + self.kept.len()
    }

    /// Bytes of the shared pages.
    pub(crate) fn shared_held(&self) -> usize {
        self.shared.iter().flatten().map(|shared| shared.page().bytes).sum()
    }

    pub(crate) fn free_bytes(&self) -> usize {
        self.held - self.in_use
    }

    /// The most that one tenant could have without a new page.
    pub(crate) fn largest_free(&self) -> usize {
        let shared = self.shared.iter().flatten().map(SharedPage::largest_free);
        shared.chain(self.kept.iter().map(|kept| kept.page.bytes)).max().unwrap_or(0)
    }

    /// A number for a new allocation, which only this pool gives, and only once.
    ///
    /// `slot` numbers the pool. Others have even numbers (see [`DeviceCore::next_allocation`]).
    pub(crate) fn next_allocation(&mut self, slot: u32) -> u64 {
        self.allocations += 1;
        (self.allocations << 7) | (u64::from(slot) << 1) | 1
    }

    /// Keeps an allocation without a tenant, whose lease has `bytes` bytes, unless there are enough of them.
    pub(crate) fn stash(&mut self, alloc: &Arc<Allocation<B>>, bytes: usize) -> bool {
        if self.stash.len() >= STASHED {
            return false;
        }
        self.in_use -= bytes;
        self.stash.push(Stashed { alloc: alloc.clone(), leased: bytes });
        true
    }

    /// An allocation of exactly `bytes` bytes that waits for a tenant: the one that came last.
    pub(crate) fn unstash(&mut self, bytes: usize) -> Option<Arc<Allocation<B>>> {
        let index = self.stash.iter().rposition(|stashed| stashed.alloc.bytes == bytes)?;
        let Stashed { alloc, leased } = self.stash.remove(index);
        self.in_use += leased;
        Some(alloc)
    }

    /// A block of a shared page that has one: the page that took the last tenant, or the first one.
    pub(crate) fn block(&mut self, slot: u32, bytes: usize, room: Room) -> Option<Reserved<B>> {
        let latest = self.latest;
        let rest = (0..self.shared.len()).filter(|index| *index != latest);
        std::iter::once(latest).chain(rest).find_map(|index| self.block_of(index, slot, bytes, room))
    }

    /// A block of the largest page that has one, the fullest of those: small pages are emptied first, so that what is
    /// moved there need not be moved again.
    pub(crate) fn tightest_block(&mut self, slot: u32, bytes: usize) -> Option<Reserved<B>> {
        let pages = self.shared.iter().enumerate();
        let welcoming = pages.filter_map(|(index, page)| {
            let page = page.as_ref().filter(|page| page.welcomes(bytes, Room::Any))?;
            Some((Reverse(page.page().bytes), page.free_bytes(), index))
        });
        let mut by_room: Vec<(Reverse<usize>, usize, usize)> = welcoming.collect();
        by_room.sort_unstable();
        by_room.into_iter().find_map(|(_, _, index)| self.block_of(index, slot, bytes, Room::Any))
    }

    /// A block of one page.
    pub(crate) fn block_of(
        &mut self,
        index: usize,
        slot: u32,
        bytes: usize,
        room: Room,
    ) -> Option<Reserved<B>> {
        let shared = self.shared.get_mut(index)?.as_mut().filter(|shared| shared.welcomes(bytes, room))?;
        let Taken { contents, block, tenant, history } = shared.take(bytes)?;
        self.in_use += bytes;
        self.latest = index;
        let lease = Lease::Block { slot, page: index as u32, tenant, block, bytes };
        Some(Reserved { contents, lease, history })
    }

    /// A kept page: of exactly these bytes, or the smallest that does not waste more than a quarter of them. Where a new
    /// page would be too much, one that wastes as much as they are is better than none.
    pub(crate) fn kept(&mut self, slot: u32, bytes: usize, fit: Fit) -> Option<Reserved<B>> {
        let spare = match fit {
            Fit::Exact => 0,
            Fit::Close if self.whole_held() + bytes > self.whole_bound(bytes) => bytes,
            Fit::Close => bytes / 4,
        };
        let fits =
            |kept: &Kept<B>| kept.fit == fit && kept.page.bytes >= bytes && kept.page.bytes - bytes <= spare;
        let candidates = self.kept.iter().enumerate().filter(|(_, kept)| fits(kept));
        let (index, _) = candidates.min_by_key(|(_, kept)| kept.page.bytes)?;
        let Kept { page, history, .. } = self.kept.swap_remove(index);
        Some(self.occupy(slot, page, fit, history))
    }

    /// Takes a new page in, for one tenant; with it come the kept pages that leave for it, the oldest first.
    pub(crate) fn add_whole(&mut self, slot: u32, page: Arc<Page<B>>, fit: Fit) -> (Reserved<B>, Leaving<B>) {
        self.held += page.bytes;
        let reserved = self.occupy(slot, page, fit, Marks::default());
        let mut leaving = Vec::new();
        while self.whole_held() > self.whole_bound(0) && !self.kept.is_empty() {
            let Kept { page, history, .. } = self.kept.remove(0);
            self.held -= page.bytes;
            leaving.push((page, history));
        }
        (reserved, leaving)
    }

    /// Bytes of the pages that one tenant has to itself, or had.
    fn whole_held(&self) -> usize {
        self.whole_in_use + self.kept.iter().map(|kept| kept.page.bytes).sum::<usize>()
    }

    /// How many bytes of such pages there may be, once a tenant of `more` bytes has come: twice what tenants had at once.
    /// Pages that fit nobody any more would else stay until a cleanup.
    fn whole_bound(&self, more: usize) -> usize {
        self.whole_peak.max(self.whole_in_use + more).saturating_mul(2)
    }

    fn occupy(&mut self, slot: u32, page: Arc<Page<B>>, fit: Fit, history: Marks) -> Reserved<B> {
        self.in_use += page.bytes;
        self.whole_in_use += page.bytes;
        self.whole_peak = self.whole_peak.max(self.whole_in_use);
        let lease = Lease::Whole { slot, tenant: self.whole.insert(), bytes: page.bytes, fit };
        Reserved::new(page, lease, history)
    }

    /// Takes a new page in, to be shared; returns its number.
    pub(crate) fn add_shared(&mut self, page: Arc<Page<B>>, granule: usize) -> usize {
        self.held += page.bytes;
        let shared = Some(SharedPage::new(page, granule));
        match self.shared.iter_mut().position(|entry| entry.is_none()) {
            Some(index) => {
                if let Some(entry) = self.shared.get_mut(index) {
                    *entry = shared;
                }
                index
            }
            None => {
                self.shared.push(shared);
                self.shared.len() - 1
            }
        }
    }

    /// Tells the page of `lease` who its tenant is, so that it can be moved.
    pub(crate) fn introduce(&mut self, lease: &Lease, tenant: Weak<Allocation<B>>) {
        match *lease {
            Lease::Block { page, tenant: index, .. } => {
                if let Some(Some(shared)) = self.shared.get_mut(page as usize) {
                    shared.tenants.introduce(index, tenant);
                }
            }
            Lease::Whole { tenant: index, .. } => self.whole.introduce(index, tenant),
            Lease::Dedicated { .. } | Lease::Adopted { .. } => {}
        }
    }

    /// Takes the shared page off, if it has no tenant.
    pub(crate) fn remove_empty(&mut self, index: usize) -> Option<(Arc<Page<B>>, Marks)> {
        let entry = self.shared.get_mut(index)?;
        let shared = entry.take_if(|shared| shared.tenants.count() == 0)?;
        self.held -= shared.page().bytes;
        Some((shared.page().clone(), shared.history()))
    }

    /// Takes off every page that has no tenant.
    pub(crate) fn remove_free(&mut self) -> Leaving<B> {
        self.whole_peak = self.whole_in_use;
        let mut removed: Leaving<B> = self.kept.drain(..).map(|kept| (kept.page, kept.history)).collect();
        self.held -= removed.iter().map(|(page, _)| page.bytes).sum::<usize>();
        removed.extend((0..self.shared.len()).filter_map(|index| self.remove_empty(index)));
        while self.shared.pop_if(|entry| entry.is_none()).is_some() {}
        removed
    }
}

impl<B: Backend> Reserved<B> {
    /// All of a page.
    pub(crate) fn new(page: Arc<Page<B>>, lease: Lease, history: Marks) -> Self {
        Reserved { contents: Contents::new(page, 0), lease, history }
    }
}

/// Takes apart what a pool kept whole, so that its bytes are free for tenants of every size. Returns whether there was any.
pub(crate) fn unstash_all<B: Backend>(device: &DeviceCore<B>, slot: u32) -> bool {
    let mut pool = device.slot(slot).pool.lock();
    let stash = std::mem::take(&mut pool.stash);
    // As if they had a tenant again, who goes now.
    pool.in_use += stash.iter().map(|stashed| stashed.leased).sum::<usize>();
    drop(pool);
    stash.iter().for_each(|stashed| stashed.alloc.dismantle(device));
    !stash.is_empty()
}

/// Gives the bytes of a tenant back to where they came from. Never calls the driver, never waits.
pub(crate) fn release<B: Backend>(
    device: &DeviceCore<B>,
    contents: Arc<Contents<B>>,
    lease: Lease,
    history: Marks,
) {
    let condemned = match lease {
        Lease::Dedicated { bytes } => {
            device.memory.dedicated.leave(bytes);
            Some((contents.page.clone(), history))
        }
        // Who drops it last hands it to its owner, once the device is past everything that was enqueued.
        Lease::Adopted { bytes } => {
            device.memory.adopted.leave(bytes);
            None
        }
        Lease::Whole { slot, tenant, bytes, fit } => {
            let mut pool = device.slot(slot).pool.lock();
            pool.in_use -= bytes;
            pool.whole_in_use -= bytes;
            pool.whole.remove(tenant);
            pool.kept.push(Kept { page: contents.page.clone(), fit, history });
            let oldest = (pool.kept.len() > KEPT).then(|| pool.kept.remove(0));
            pool.held -= oldest.as_ref().map_or(0, |kept| kept.page.bytes);
            oldest.map(|kept| (kept.page, kept.history))
        }
        Lease::Block { slot, page, tenant, block, bytes } => {
            let mut pool = device.slot(slot).pool.lock();
            pool.in_use -= bytes;
            match pool.shared.get_mut(page as usize) {
                Some(Some(shared)) => {
                    shared.give(contents, (block, tenant, bytes), history, |mark| device.passed(mark));
                }
                _ => debug_assert!(false, "a page keeps its number for as long as it has tenants"),
            }
            None
        }
    };
    if let Some((page, history)) = condemned {
        device.memory.graveyard.condemn(page, history);
    }
}
