//! The memory of a CUDA device.

#![allow(unsafe_code, reason = "calls of the CUDA driver")]

use std::any::Any;
use std::hint::cold_path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytemuck::Pod;
use cudarc::driver::CudaSlice;
use parking_lot::Mutex;
use static_assertions::assert_impl_all;

use crate::backend::cuda::adopt::Lent;
use crate::backend::cuda::retire::Retired;
use crate::backend::cuda::sys;
use crate::backend::cuda::{Cuda, Machine};
use crate::backend::fault::Severity;
use crate::backend::{Call, Fault, Region};
use crate::error::{Error, Hindrance, Result as Outcome};

/// One allocation of the driver. Dropped without having been freed, it is given back once the device is past its uses.
pub struct CudaMemory {
    start: sys::CUdeviceptr,
    owner: Owner,
    machine: Arc<Machine>,
}

/// Who gets it back.
enum Owner {
    /// The driver, once.
    Driver { freed: AtomicBool },
    /// Another library, unless it has it back already.
    Theirs(Mutex<Option<Box<dyn Lent>>>),
}

impl CudaMemory {
    pub(crate) fn allocate(machine: &Arc<Machine>, bytes: usize) -> Result<Self, Fault> {
        let _relaxed = machine.context.relaxed()?;
        let bytes = bytes.max(1);
        let start = machine.store.allocate(bytes)?;
        let owner = Owner::Driver { freed: AtomicBool::new(false) };
        Ok(CudaMemory { start, owner, machine: machine.clone() })
    }

    /// The bytes at `start`, which are those of `theirs`.
    pub(crate) fn adopted(machine: &Arc<Machine>, start: sys::CUdeviceptr, theirs: Box<dyn Lent>) -> Self {
        CudaMemory { start, owner: Owner::Theirs(Mutex::new(Some(theirs))), machine: machine.clone() }
    }

    /// Takes out what the memory was made of, a slice of `T`, once `release` is through with it.
    ///
    /// # Errors
    /// [`Error::Kept`] if it was made of something else, and what `release` returns; it stays.
    pub(crate) fn reclaim<T: Pod>(
        &self,
        release: impl FnOnce(&mut CudaSlice<T>) -> Outcome<()>,
    ) -> Outcome<CudaSlice<T>> {
        let kept = |because| Error::Kept { operation: "into_cudarc", because };
        let Owner::Theirs(theirs) = &self.owner else { return Err(kept(Hindrance::NotAdopted)) };
        let mut theirs = theirs.lock();
        let found = theirs.as_deref_mut().and_then(|lent| (lent as &mut dyn Any).downcast_mut());
        release(found.ok_or_else(|| kept(Hindrance::Cast))?)?;
        let taken = theirs.take().and_then(|lent| (lent as Box<dyn Any>).downcast::<CudaSlice<T>>().ok());
        taken.map(|slice| *slice).ok_or_else(|| kept(Hindrance::Cast))
    }

    /// Gives it back. Everything that was enqueued on it has passed.
    pub(crate) fn free(&self) -> Result<(), Fault> {
        // What belongs to others goes back to them when it is dropped.
        let Owner::Driver { freed } = &self.owner else { return Ok(()) };
        let _relaxed = self.machine.context.relaxed()?;
        // AcqRel: of two who free, one does.
        if freed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // SAFETY: `start` came from the store and `freed` says that it was not given back. By the caller's word nothing that
        // is enqueued uses it any more.
        let outcome = unsafe { self.machine.store.free(self.start) };
        if outcome.is_err() {
            freed.store(false, Ordering::Release);
        }
        outcome
    }

    pub(crate) fn address(&self, offset: usize) -> u64 {
        self.start + offset as u64
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        match &mut self.owner {
            Owner::Driver { freed } => {
                if !*freed.get_mut() {
                    self.machine.retire(Retired::Memory(self.start));
                }
            }
            Owner::Theirs(theirs) => {
                let theirs = theirs.get_mut().take();
                theirs.into_iter().for_each(|lent| self.machine.retire(Retired::Lent(lent)));
            }
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
    let Region { start, end, .. } = *region;
    if start <= end && end <= contents.room {
        Ok((contents.address + start as u64, end - start))
    } else {
        cold_path();
        Err(Fault::new(call, Severity::Sticky, "illegal address: outside of its memory"))
    }
}

assert_impl_all!(CudaMemory: Send, Sync);
