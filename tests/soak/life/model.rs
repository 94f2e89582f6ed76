//! What a buffer must hold: the bytes, and which of them were never written.

use std::ops::Range;

#[derive(Clone)]
pub struct Model {
    bytes: Vec<u8>,
    /// Bytes that a read must refuse: in no order, and they may overlap.
    bad: Vec<Range<usize>>,
}

impl Model {
    pub fn zeroed(len: usize) -> Self {
        Model { bytes: vec![0; len], bad: Vec::new() }
    }

    pub fn unwritten(len: usize) -> Self {
        let mut model = Self::zeroed(len);
        model.spoil(&(0..len));
        model
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes of `range`, unless one of them was never written.
    pub fn read(&self, range: &Range<usize>) -> Option<&[u8]> {
        let refused = self.bad.iter().any(|bad| bad.start < range.end && range.start < bad.end);
        (!refused).then(|| &self.bytes[range.clone()])
    }

    pub fn spoil(&mut self, range: &Range<usize>) {
        self.bad.retain(|bad| bad.start < range.start || range.end < bad.end);
        self.bad.push(range.clone());
    }

    /// Makes every byte of `range` a written one, and lends them to be set.
    pub fn write(&mut self, range: &Range<usize>) -> &mut [u8] {
        let parts = std::mem::take(&mut self.bad);
        let outside =
            |bad: Range<usize>| [bad.start..bad.end.min(range.start), bad.start.max(range.end)..bad.end];
        self.bad = parts.into_iter().flat_map(outside).filter(|bad| !bad.is_empty()).collect();
        &mut self.bytes[range.clone()]
    }

    /// Cuts it in two, as `Buffer::split_off` does.
    pub fn split_off(&mut self, at: usize) -> Self {
        let bytes = self.bytes.split_off(at);
        let tail = self.bad.iter().map(|bad| bad.start.max(at) - at..bad.end.max(at) - at);
        let bad = tail.filter(|bad| !bad.is_empty()).collect();
        self.bad.iter_mut().for_each(|bad| bad.end = bad.end.min(at));
        self.bad.retain(|bad| bad.start < bad.end);
        Model { bytes, bad }
    }
}
