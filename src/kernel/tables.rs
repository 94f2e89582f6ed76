//! The tables that one launch brings along, until they are found or uploaded.

#![forbid(unsafe_code)]

use std::hint::cold_path;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::error::Error;

/// The most bytes of one table: what every device can bind as a uniform.
pub(crate) const MAX_BYTES: usize = 64 << 10;

/// Tables, copied from the host: their bytes one after the other. Used again by the stream's next launch.
///
/// In the order of its fields: most launches look at the first one alone.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Gathered {
    /// Whether there is anything: most launches have none, and look no further.
    is_used: bool,
    bytes: Vec<u8>,
    spans: SmallVec<[Span; 4]>,
    /// The size of the first table that is too large to be copied.
    excess: Option<usize>,
}

/// One table.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    /// Its place among the launch's buffers, tables included.
    pub(crate) place: usize,
    range: Range<usize>,
}

impl Gathered {
    /// Appends a table that comes after `buffers` other arguments.
    pub(crate) fn push(&mut self, buffers: usize, table: &[u8]) {
        self.is_used = true;
        if table.len() > MAX_BYTES {
            self.excess.get_or_insert(table.len());
            return;
        }
        let (place, start) = (buffers + self.spans.len(), self.bytes.len());
        self.bytes.extend_from_slice(table);
        self.spans.push(Span { place, range: start..self.bytes.len() });
    }

    /// What is wrong with them, for a launch of `kernel`.
    #[inline]
    pub(crate) fn problem(&self, kernel: &Arc<str>) -> Option<Error> {
        let requested = self.excess.filter(|_| self.is_used)?;
        cold_path();
        Some(Error::TableTooBig { kernel: kernel.clone(), requested, limit: MAX_BYTES })
    }

    /// Each table, with its place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.spans.iter().map(|span| (span.place, self.bytes.get(span.range.clone()).unwrap_or(&[])))
    }

    /// The table at `place`.
    pub(crate) fn at(&self, place: usize) -> Option<&[u8]> {
        self.iter().find(|(at, _)| *at == place).map(|(_, table)| table)
    }

    /// Whether no argument was a table, not even one that was too large.
    #[inline]
    pub(crate) fn is_unused(&self) -> bool {
        !self.is_used
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_used || self.spans.is_empty()
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.is_used {
            self.bytes.clear();
            self.spans.clear();
            (self.excess, self.is_used) = (None, false);
        }
    }
}
