//! Host memory that transfers are gathered in.

#![forbid(unsafe_code)]

use bytemuck::{Pod, Zeroable};

use crate::backend::HostBytes;

/// Blocks of the heap: wgpu lets nobody pin memory of their own, and copies it to what it has mapped.
pub(crate) struct HeapBytes {
    lines: Vec<Line>,
    bytes: usize,
}

/// So that the block starts where any element may.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(256))]
struct Line([u8; 256]);

impl HeapBytes {
    pub(crate) fn zeroed(bytes: usize) -> Self {
        HeapBytes { lines: vec![Line::zeroed(); bytes.div_ceil(size_of::<Line>())], bytes }
    }
}

impl HostBytes for HeapBytes {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.lines).get(..self.bytes).unwrap_or_default()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.lines).get_mut(..self.bytes).unwrap_or_default()
    }
}
