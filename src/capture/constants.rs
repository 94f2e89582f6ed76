//! The tables of one window that no cache holds: on the device, they become one allocation with one upload.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, BuildHasherDefault};
use std::ops::Range;

use crate::capture::recorder::IdHasher;

/// Tables, each of them once, one after the other. Flat lists, whose room the next recording of the stream uses again.
pub(crate) struct Constants<S = RandomState> {
    bytes: Vec<u8>,
    tables: Vec<Table>,
    /// Per hash of the contents, the last table that has it.
    index: HashMap<u64, usize, BuildHasherDefault<IdHasher>>,
    hasher: S,
}

struct Table {
    range: Range<usize>,
    /// Another table whose contents have the same hash.
    next: Option<usize>,
}

impl<S: Default> Default for Constants<S> {
    fn default() -> Self {
        Constants { bytes: Vec::new(), tables: Vec::new(), index: HashMap::default(), hasher: S::default() }
    }
}

impl<S: BuildHasher> Constants<S> {
    /// Where the table is, from now on if it is new; it starts at a multiple of `align`.
    pub(crate) fn place(&mut self, table: &[u8], align: usize) -> Range<usize> {
        let hash = self.hasher.hash_one(table);
        let first = self.index.get(&hash).copied();
        if let Some(known) = self.find(first, table) {
            return known;
        }
        let start = self.bytes.len().next_multiple_of(align);
        self.bytes.resize(start, 0);
        self.bytes.extend_from_slice(table);
        let range = start..self.bytes.len();
        self.index.insert(hash, self.tables.len());
        self.tables.push(Table { range: range.clone(), next: first });
        range
    }

    /// All of them, with what alignment adds.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.tables.clear();
        self.index.clear();
    }

    /// The table with these contents, among those that follow `at`.
    fn find(&self, mut at: Option<usize>, contents: &[u8]) -> Option<Range<usize>> {
        while let Some(table) = at.and_then(|at| self.tables.get(at)) {
            // A hash that agrees says nothing: two shapes must never be taken for one.
            if self.bytes.get(table.range.clone()) == Some(contents) {
                return Some(table.range.clone());
            }
            at = table.next;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tables::tests::Same;

    /// A table found by its hash alone would give a launch the shapes of another.
    #[test]
    fn tables_whose_hashes_collide_are_told_apart() {
        let mut constants = Constants::<BuildHasherDefault<Same>>::default();
        let tables: Vec<Vec<u8>> = (0..20u8).map(|n| vec![n; usize::from(n)]).collect();
        let places: Vec<_> = tables.iter().map(|table| constants.place(table, 16)).collect();
        for (table, place) in tables.iter().zip(&places) {
            assert_eq!(constants.place(table, 16), *place);
            assert_eq!(&constants.bytes()[place.clone()], table);
            assert!(place.start.is_multiple_of(16));
        }
    }

    /// A window of a thousand launches with one shape would else upload it a thousand times.
    #[test]
    fn a_table_is_placed_once() {
        let mut constants = Constants::<RandomState>::default();
        let place = constants.place(&[1, 2, 3], 256);
        assert_eq!(constants.place(&[1, 2, 3], 256), place);
        assert_eq!(constants.place(&[1, 2, 4], 256), 256..259);
        constants.clear();
        assert_eq!(constants.place(&[1, 2, 4], 256), 0..3);
    }
}
