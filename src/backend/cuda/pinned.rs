//! Pinned host memory.

#![allow(unsafe_code, reason = "calls of the CUDA driver")]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::backend::cuda::Machine;
use crate::backend::cuda::context::{Context, check};
use crate::backend::cuda::retire::Retired;
use crate::backend::cuda::sys;
use crate::backend::fault::Severity;
use crate::backend::{Call, Fault, HostBytes};

/// Host memory that the device copies to and from without a detour.
pub(crate) struct CudaPinned {
    block: Block,
    machine: Arc<Machine>,
}

/// A pinned allocation, which nobody gives back by itself.
pub(crate) struct Block {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: `start` is the address of memory that belongs to whoever owns the value; the driver lets any thread use it
// and give it back.
unsafe impl Send for Block {}

// SAFETY: a shared `Block` hands out its address and shared bytes only.
unsafe impl Sync for Block {}

impl Block {
    /// `bytes` bytes of zeros, at least one.
    pub(crate) fn zeroed(context: &Context, bytes: usize) -> Result<Self, Fault> {
        let _relaxed = context.relaxed()?;
        let (mut start, bytes) = (std::ptr::null_mut(), bytes.max(1));
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: `start` is a place for an address, and a context is current.
        check(Call::Pin, unsafe { sys::cuMemHostAlloc(&mut start, bytes, flags) })?;
        let none = || Fault::new(Call::Pin, Severity::Memory, "the driver gave no memory");
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(none)?;
        // SAFETY: the driver gave `bytes` writable bytes at `start`, which nobody else knows of yet.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Block { start, bytes })
    }

    /// Where it starts.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives it back.
    ///
    /// # Safety
    /// Nothing uses it any more, neither here nor on the device, and a context is current.
    pub(crate) unsafe fn free(self) -> Result<(), Fault> {
        // SAFETY: `start` came from `cuMemHostAlloc`, and `self` was its only owner; the rest is the caller's word.
        check(Call::Free, unsafe { sys::cuMemFreeHost(self.start.as_ptr().cast::<c_void>()) })
    }
}

impl CudaPinned {
    pub(crate) fn zeroed(machine: &Arc<Machine>, bytes: usize) -> Result<Self, Fault> {
        Ok(CudaPinned { block: Block::zeroed(&machine.context, bytes)?, machine: machine.clone() })
    }
}

impl HostBytes for CudaPinned {
    fn bytes(&self) -> &[u8] {
        // SAFETY: `start` is the address of `bytes` initialised bytes (`zeroed` wrote them), which live as long as `self`.
        // The device writes them only while the library hands them to nobody.
        unsafe { std::slice::from_raw_parts(self.block.start.as_ptr(), self.block.bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` is the only way to them.
        unsafe { std::slice::from_raw_parts_mut(self.block.start.as_ptr(), self.block.bytes) }
    }
}

impl Drop for CudaPinned {
    fn drop(&mut self) {
        let block = Block { start: self.block.start, bytes: self.block.bytes };
        self.machine.retire(Retired::Pinned(block));
    }
}
