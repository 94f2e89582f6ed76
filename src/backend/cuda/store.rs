//! Where pages come from, and where they go without anybody having to wait.
//!
//! The driver's plain free waits for all work of its context, and keeps everybody from the driver meanwhile. One into a pool
//! waits for its stream alone; on that one nothing else runs, and the pool keeps nothing.

#![allow(unsafe_code, reason = "calls of the CUDA driver")]

use crate::backend::cuda::context::{Context, check};
use crate::backend::cuda::sys;
use crate::backend::{Call, Fault};

/// The device's memory.
pub(crate) struct Store {
    /// `None` on a device that has no pools.
    pool: Option<Pool>,
}

struct Pool {
    raw: sys::CUmemoryPool,
    stream: sys::CUstream,
}

// SAFETY: two handles of objects of the driver, which any thread may use and destroy.
unsafe impl Send for Pool {}
// SAFETY: as for `Send`; the driver's calls on one pool and one stream may be made by several threads at once.
unsafe impl Sync for Pool {}

impl Store {
    pub(crate) fn new(context: &Context) -> Result<Self, Fault> {
        let has_pools = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
        let pool = if context.attribute(has_pools)? == 0 { None } else { Some(Pool::new(context)?) };
        Ok(Store { pool })
    }

    /// `bytes` bytes, at least one, that may be used at once on every stream; the context is bound.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<sys::CUdeviceptr, Fault> {
        let mut start = 0;
        let Some(pool) = &self.pool else {
            // SAFETY: `start` is a place for an address, and a context is current.
            check(Call::Allocate, unsafe { sys::cuMemAlloc_v2(&mut start, bytes) })?;
            return Ok(start);
        };
        // SAFETY: as above; pool and stream live as long as `self`.
        let code = unsafe { sys::cuMemAllocFromPoolAsync(&mut start, bytes, pool.raw, pool.stream) };
        check(Call::Allocate, code)?;
        pool.settle(Call::Allocate).inspect_err(|_| _ = pool.free(start))?;
        Ok(start)
    }

    /// Gives back what [`allocate`](Store::allocate) gave; the context is bound.
    ///
    /// # Safety
    /// Nothing that is enqueued uses it any more, and it was not given back before.
    pub(crate) unsafe fn free(&self, start: sys::CUdeviceptr) -> Result<(), Fault> {
        match &self.pool {
            // SAFETY: it came from `cuMemAlloc`; the rest is the caller's word.
            None => check(Call::Free, unsafe { sys::cuMemFree_v2(start) }),
            Some(pool) => {
                pool.free(start)?;
                // Only then others get it. A refusal to wait for it is no reason to free it twice.
                let _ = pool.settle(Call::Free);
                Ok(())
            }
        }
    }

    /// Gives the pool up, of which nothing is in use; the context is bound.
    pub(crate) fn close(&mut self) {
        let Some(pool) = self.pool.take() else { return };
        // SAFETY: both came from the driver, and `self` was their owner. A refusal leaks them.
        let _ = unsafe { sys::cuMemPoolDestroy(pool.raw) };
        // SAFETY: as above.
        let _ = unsafe { sys::cuStreamDestroy_v2(pool.stream) };
    }
}

impl Pool {
    fn new(context: &Context) -> Result<Self, Fault> {
        let _relaxed = context.relaxed()?;
        let mut device = 0;
        // SAFETY: `device` is a place for a number, and the context is current.
        check(Call::Open, unsafe { sys::cuCtxGetDevice(&mut device) })?;
        let mut pool = Pool { raw: std::ptr::null_mut(), stream: std::ptr::null_mut() };
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: `stream` is a place for a handle.
        check(Call::Open, unsafe { sys::cuStreamCreate(&mut pool.stream, flags) })?;
        // SAFETY: plain numbers and addresses, for which zero means none.
        let mut props: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
        props.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        props.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        props.location.id = device;
        // SAFETY: `raw` is a place for a handle. By default a pool keeps nothing once its stream was waited for.
        check(Call::Open, unsafe { sys::cuMemPoolCreate(&mut pool.raw, &props) }).inspect_err(|_| {
            // SAFETY: it was created just now.
            let _ = unsafe { sys::cuStreamDestroy_v2(pool.stream) };
        })?;
        Ok(pool)
    }

    fn free(&self, start: sys::CUdeviceptr) -> Result<(), Fault> {
        // SAFETY: it came from the pool, is not in use, and is given back once: the callers' word.
        check(Call::Free, unsafe { sys::cuMemFreeAsync(start, self.stream) })
    }

    /// Waits for what was asked of the pool, and for nothing else.
    fn settle(&self, call: Call) -> Result<(), Fault> {
        // SAFETY: the stream lives as long as `self`.
        check(call, unsafe { sys::cuStreamSynchronize(self.stream) })
    }
}
