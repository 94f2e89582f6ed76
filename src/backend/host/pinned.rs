//! The pinned memory of a host device: plain memory, since there is nothing to pin it for.

#![forbid(unsafe_code)]

use bytemuck::{Pod, Zeroable};
use static_assertions::const_assert_eq;

use crate::backend::fault::Severity;
use crate::backend::host::memory::ALIGNMENT;
use crate::backend::{Call, Fault, HostBytes};

/// Memory that starts where a driver's would.
pub(crate) struct HostPinned(Vec<Line>);

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(256))]
struct Line([u8; ALIGNMENT]);

const_assert_eq!(align_of::<Line>(), ALIGNMENT);

impl HostPinned {
    /// `bytes` bytes, in whole lines.
    pub(crate) fn zeroed(bytes: usize) -> Result<Self, Fault> {
        let lines = bytemuck::allocation::try_zeroed_vec(bytes.div_ceil(ALIGNMENT));
        lines
            .map(HostPinned)
            .map_err(|()| Fault::new(Call::Pin, Severity::Memory, "the system has no more memory"))
    }
}

impl HostBytes for HostPinned {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}
