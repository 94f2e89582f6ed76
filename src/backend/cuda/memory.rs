//! The memory of a CUDA device.

#![allow(unsafe_code, reason = "calls of the CUDA driver")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use static_assertions::assert_impl_all;

use crate::backend::cuda::retire::Retired;
use crate::backend::cuda::sys;
use crate::backend::cuda::{Cuda, Machine};
use crate::backend::fault::Severity;
use crate::backend::{Call, Fault, Region};

/// One allocation of the driver. Dropped without having been freed, it is given back once the device is past its uses.
pub struct CudaMemory {
    start: sys::CUdeviceptr,
    bytes: usize,
    freed: AtomicBool,
    machine: Arc<Machine>,
}

impl CudaMemory {
    pub(crate) fn allocate(machine: &Arc<Machine>, bytes: usize) -> Result<Self, Fault> {
        let _relaxed = machine.context.relaxed()?;
        let bytes = bytes.max(1);
        let start = machine.store.allocate(bytes)?;
        Ok(CudaMemory { start, bytes, freed: AtomicBool::new(false), machine: machine.clone() })
    }

    /// Gives it back. Everything that was enqueued on it has passed.
    pub(crate) fn free(&self) -> Result<(), Fault> {
        let _relaxed = self.machine.context.relaxed()?;
        // AcqRel: of two who free, one does.
        if self.freed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // SAFETY: `start` came from the store and `freed` says that it was not given back. By the caller's word nothing that
        // is enqueued uses it any more.
        let outcome = unsafe { self.machine.store.free(self.start) };
        if outcome.is_err() {
            self.freed.store(false, Ordering::Release);
        }
        outcome
    }

    pub(crate) fn address(&self, offset: usize) -> u64 {
        self.start + offset as u64
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        if !*self.freed.get_mut() {
            self.machine.retire(Retired::Memory(self.start));
        }
    }
}

/// Where a region's bytes are, and how many; a null address for an empty one.
///
/// # Errors
/// A sticky fault for a region that does not lie in the memory that it names.
#[inline]
pub(crate) fn address(call: Call, region: &Region<Cuda>) -> Result<(sys::CUdeviceptr, usize), Fault> {
    let Some(contents) = &region.contents else { return Ok((0, 0)) };
    let memory = &contents.page.memory;
    let range = contents.offset.checked_add(region.start).zip(contents.offset.checked_add(region.end));
    match range.filter(|(start, end)| start <= end && *end <= memory.bytes) {
        Some((start, end)) => Ok((memory.address(start), end - start)),
        None => Err(Fault::new(call, Severity::Sticky, "illegal address: outside of its memory")),
    }
}

assert_impl_all!(CudaMemory: Send, Sync);
