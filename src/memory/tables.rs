//! A slot's table cache: the small tables that launches bring along, on the device under their contents.
//!
//! Entries are ordinary allocations, so that their order against everything else follows from the ordinary rules. Whoever
//! needs one to stay pins it: a graph that uses it, a recording, a window in its warm-up. Those that nobody pins leave, the
//! least recently used first, once there are more than the cache is for.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use crate::backend::Backend;
use crate::device::DeviceCore;
use crate::memory::allocation::Allocation;
use crate::memory::report::TablesReport;

/// Larger tables are uploaded for their one launch, unless a window keeps them.
const LARGEST: usize = 4 << 10;

/// How much a cache holds of what nobody pins, from one look at all of it to the next.
const ROOM: Extent = Extent { entries: 256, bytes: 1 << 20 };

/// For how long a table is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// For the launches to come, if it is small.
    Usual,
    /// Whatever its size, since a window holds it.
    Window,
}

impl Keep {
    /// Whether a table of so many bytes goes into the cache.
    pub(crate) fn admits(self, bytes: usize) -> bool {
        self == Keep::Window || bytes <= LARGEST
    }
}

/// The tables of one slot, found by their whole contents.
pub(crate) struct Tables<B: Backend, S = RandomState> {
    entries: HashMap<Arc<[u8]>, Entry<B>, S>,
    /// Counts uses, so that every entry has its place among them.
    clock: u64,
    held: Extent,
    /// What came, or lost its pin, since the last look at all entries.
    fresh: Extent,
}

struct Entry<B: Backend> {
    alloc: Arc<Allocation<B>>,
    last_use: u64,
}

/// How many entries, and the bytes of their contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Extent {
    entries: usize,
    bytes: usize,
}

/// Entries that left a cache, to be let go of under no lock.
pub(crate) type Leaving<B> = Vec<Arc<Allocation<B>>>;

impl<B: Backend, S: Default> Default for Tables<B, S> {
    fn default() -> Self {
        Tables { entries: HashMap::default(), clock: 0, held: Extent::default(), fresh: Extent::default() }
    }
}

impl<B: Backend, S: BuildHasher> Tables<B, S> {
    /// The entry with these contents. One whose upload is known to have failed is as good as none.
    pub(crate) fn find(&mut self, contents: &[u8]) -> Option<Arc<Allocation<B>>> {
        let entry = self.entries.get_mut(contents)?;
        if entry.alloc.state.lock().is_tainted(&(0..contents.len())) {
            return None;
        }
        self.clock += 1;
        entry.last_use = self.clock;
        Some(entry.alloc.clone())
    }

    /// Adds an entry, in place of one with the same contents.
    #[must_use]
    pub(crate) fn insert(&mut self, contents: Arc<[u8]>, alloc: Arc<Allocation<B>>) -> Leaving<B> {
        self.clock += 1;
        let bytes = contents.len();
        self.held.add(bytes);
        self.fresh.add(bytes);
        let replaced = self.entries.insert(contents, Entry { alloc, last_use: self.clock });
        if replaced.is_some() {
            self.held.remove(bytes);
        }
        let mut leaving = self.shrink();
        leaving.extend(replaced.map(|entry| entry.alloc));
        leaving
    }

    /// A window let go of so many entries, of so many bytes.
    #[must_use]
    pub(crate) fn unpinned(&mut self, entries: usize, bytes: usize) -> Leaving<B> {
        self.fresh = Extent { entries: self.fresh.entries + entries, bytes: self.fresh.bytes + bytes };
        self.shrink()
    }

    /// Lets the least recently used entries go, if there is more than room for and enough came for a look at all.
    fn shrink(&mut self) -> Leaving<B> {
        // A look costs as much as there are entries, pinned ones too, so that it must wait for a part of them to be new.
        let enough = Extent {
            entries: (ROOM.entries / 4).max(self.held.entries / 8),
            bytes: (ROOM.bytes / 4).max(self.held.bytes / 8),
        };
        if !self.held.exceeds(ROOM) || !self.fresh.exceeds(enough) {
            return Leaving::new();
        }
        self.fresh = Extent::default();
        let oldest = self.oldest_to_keep();
        self.remove(|entry| entry.last_use < oldest)
    }

    /// Lets go of every entry that nobody pins.
    #[must_use]
    pub(crate) fn trim(&mut self) -> Leaving<B> {
        self.fresh = Extent::default();
        self.remove(|_| true)
    }

    /// What the cache holds at this moment.
    pub(crate) fn usage(&self) -> TablesReport {
        let pinned = self.entries.values().filter(|entry| entry.is_pinned()).count();
        TablesReport { entries: self.held.entries, bytes: self.held.bytes, pinned }
    }

    /// The use since which three quarters of the room suffice for everything that is not pinned.
    fn oldest_to_keep(&self) -> u64 {
        let idle = self.entries.iter().filter(|(_, entry)| !entry.is_pinned());
        let mut idle: Vec<_> = idle.map(|(contents, entry)| (entry.last_use, contents.len())).collect();
        idle.sort_unstable_by_key(|(last_use, _)| std::cmp::Reverse(*last_use));
        let room = Extent { entries: ROOM.entries / 4 * 3, bytes: ROOM.bytes / 4 * 3 };
        let mut kept = Extent::default();
        for (last_use, bytes) in idle {
            kept.add(bytes);
            if kept.exceeds(room) {
                return last_use + 1;
            }
        }
        0
    }

    /// Removes the entries that `leaves` picks of those that nobody pins.
    fn remove(&mut self, leaves: impl Fn(&Entry<B>) -> bool) -> Leaving<B> {
        let gone = self.entries.extract_if(|_, entry| !entry.is_pinned() && leaves(entry));
        let held = &mut self.held;
        let leaving = gone.map(|(contents, entry)| {
            held.remove(contents.len());
            entry.alloc
        });
        let leaving = leaving.collect();
        // What a large window needed is not kept for ever.
        self.entries.shrink_to(self.entries.len().max(ROOM.entries) * 2);
        leaving
    }
}

impl<B: Backend> Entry<B> {
    fn is_pinned(&self) -> bool {
        self.alloc.state.lock().is_pinned()
    }
}

impl Extent {
    fn add(&mut self, bytes: usize) {
        self.entries += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: usize) {
        self.entries -= 1;
        self.bytes -= bytes;
    }

    fn exceeds(self, other: Extent) -> bool {
        self.entries > other.entries || self.bytes > other.bytes
    }
}

/// Lets go of every table of the device that no graph or window pins.
pub(crate) fn trim<B: Backend>(device: &DeviceCore<B>) {
    for slot in &device.slots {
        let leaving = slot.tables.lock().trim();
        drop(leaving);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::hash::{BuildHasherDefault, Hasher};

    use super::*;
    use crate::prelude::*;

    /// Everything has one hash.
    #[derive(Default)]
    pub(crate) struct Same;

    impl Hasher for Same {
        fn finish(&self) -> u64 {
            7
        }

        fn write(&mut self, _: &[u8]) {}
    }

    fn add<S: BuildHasher>(tables: &mut Tables<Host, S>, device: &Device, contents: &[u8]) -> u64 {
        let alloc = Allocation::table(&device.core, 0, contents.len()).unwrap();
        let id = alloc.id();
        drop(tables.insert(contents.into(), alloc));
        id
    }

    /// A table found by its hash alone would give a launch the shapes of another.
    #[test]
    fn tables_whose_hashes_collide_are_told_apart() {
        let device = Device::host().unwrap();
        let mut tables = Tables::<Host, BuildHasherDefault<Same>>::default();
        let contents: Vec<Vec<u8>> = (0..20u8).map(|n| vec![n; usize::from(n)]).collect();
        let ids: Vec<u64> = contents.iter().map(|contents| add(&mut tables, &device, contents)).collect();
        for (contents, id) in contents.iter().zip(ids) {
            assert_eq!(tables.find(contents).unwrap().id(), id);
        }
        assert!(tables.find(&[99]).is_none());
    }

    /// Two threads that miss at once both insert; a table counted twice would never be counted off.
    #[test]
    fn a_table_that_is_added_again_counts_once() {
        let device = Device::host().unwrap();
        let mut tables = Tables::<Host>::default();
        add(&mut tables, &device, &[1, 2, 3]);
        let again = add(&mut tables, &device, &[1, 2, 3]);
        assert_eq!(tables.find(&[1, 2, 3]).unwrap().id(), again);
        assert_eq!(tables.usage(), TablesReport { entries: 1, bytes: 3, pinned: 0 });
        drop(tables.trim());
        assert_eq!(tables.usage(), TablesReport::default());
    }

    /// Room that pinned tables took from the others, or a pinned one that left.
    #[test]
    fn pinned_tables_stay_and_the_newest_of_the_others() {
        let device = Device::host().unwrap();
        let mut tables = Tables::<Host>::default();
        let contents = |n: u32| n.to_le_bytes();
        for n in 0..1000 {
            add(&mut tables, &device, &contents(n));
            tables.find(&contents(n)).unwrap().state.lock().pins += 1;
        }
        (1000..5000).for_each(|n| _ = add(&mut tables, &device, &contents(n)));
        let usage = tables.usage();
        assert_eq!(usage.pinned, 1000);
        // A look comes after an eighth of all entries is new.
        assert!((1192..=1192 + 1192 / 7 + 1).contains(&usage.entries), "{usage:?}");
        assert!((0..1000).chain(4850..5000).all(|n| tables.find(&contents(n)).is_some()));
        (0..1000).for_each(|n| tables.find(&contents(n)).unwrap().state.lock().pins -= 1);
        drop(tables.unpinned(1000, 4000));
        assert_eq!(tables.usage().entries, 192);
    }
}
