//! The driver's context of a device, and what the driver says in our words.

#![allow(unsafe_code, reason = "calls of the CUDA driver")]

use std::ffi::c_int;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use static_assertions::assert_impl_all;

use crate::backend::cuda::sys::{self, CUresult, Code};
use crate::backend::fault::Severity;
use crate::backend::{Call, Fault, Limits};

/// The oldest driver that has every call that is used here: CUDA 12.8.
const OLDEST: c_int = 12_080;

/// What a device can address in pieces of memory starts at a multiple of this.
pub(crate) const ALIGNMENT: usize = 256;

/// A hold on a context of the driver, which the other libraries of the process use too.
pub(crate) struct Context {
    ordinal: usize,
    device: sys::CUdevice,
    raw: sys::CUcontext,
    hold: Hold,
}

/// What keeps a context.
enum Hold {
    /// The device's primary context, retained by us.
    Primary,
    /// The program's own handle, whose last drop gives the context up.
    Theirs { _context: Arc<CudaContext> },
    /// Nothing: it stays for good.
    Abandoned,
}

// SAFETY: `ordinal` and `device` are plain and `hold` is `Send` by itself. `raw` names a context of the driver, which any
// thread may make its current one, and which lives until `drop` gives up the hold.
unsafe impl Send for Context {}

// SAFETY: field by field as for `Send`; nothing here is changed through a shared reference.
unsafe impl Sync for Context {}

/// While it lives, the context is the calling thread's current one.
pub(crate) struct Bound {
    /// Somebody else's context, which was current before; null, if there was none.
    previous: sys::CUcontext,
}

/// While it lives, the calling thread may allocate, free and ask beside somebody's capture in global mode.
pub(crate) struct Relaxed {
    previous: sys::CUstreamCaptureMode,
    _bound: Bound,
}

impl Context {
    /// Takes hold of the device's primary context.
    ///
    /// # Errors
    /// What is missing: the driver, a new enough one, any device, this device.
    pub(crate) fn open(ordinal: usize) -> Result<Self, Fault> {
        present()?;
        let mut count = 0;
        // SAFETY: `count` is a place for a number, and the driver is initialised.
        check(Call::Open, unsafe { sys::cuDeviceGetCount(&mut count) })?;
        let index = c_int::try_from(ordinal).ok().filter(|index| *index < count);
        let Some(index) = index else {
            let message =
                format!("there is no CUDA device {ordinal}: this machine has {count}, counted from 0");
            return Err(Fault::new(Call::Open, Severity::Call, message));
        };
        let mut device = 0;
        // SAFETY: `device` is a place for a number.
        check(Call::Open, unsafe { sys::cuDeviceGet(&mut device, index) })?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is a place for a handle, `device` came from the driver.
        check(Call::Open, unsafe { sys::cuDevicePrimaryCtxRetain(&mut raw, device) })?;
        Ok(Context { ordinal, device, raw, hold: Hold::Primary })
    }

    /// Takes a share in a context that the program has, its primary one or another.
    ///
    /// # Errors
    /// What is missing: a new enough driver.
    pub(crate) fn shared(theirs: &Arc<CudaContext>) -> Result<Self, Fault> {
        present()?;
        let (device, raw) = (theirs.cu_device(), theirs.cu_ctx());
        let hold = Hold::Theirs { _context: theirs.clone() };
        Ok(Context { ordinal: theirs.ordinal(), device, raw, hold })
    }

    /// The number of the device among those of the machine.
    pub(crate) fn ordinal(&self) -> usize {
        self.ordinal
    }

    pub(crate) fn device(&self) -> sys::CUdevice {
        self.device
    }

    pub(crate) fn raw(&self) -> sys::CUcontext {
        self.raw
    }

    /// Keeps the driver's context for good, where nothing may be asked of the driver.
    pub(crate) fn abandon(&mut self) {
        std::mem::forget(std::mem::replace(&mut self.hold, Hold::Abandoned));
    }

    /// Makes the context the calling thread's current one. Where there was none, it stays so afterwards.
    #[inline]
    pub(crate) fn bind(&self) -> Result<Bound, Fault> {
        let mut current = std::ptr::null_mut();
        // SAFETY: `current` is a place for a handle.
        let code = unsafe { sys::cuCtxGetCurrent(&mut current) };
        if code == CUresult::CUDA_SUCCESS && current == self.raw {
            return Ok(Bound { previous: std::ptr::null_mut() });
        }
        self.bind_after(code, current)
    }

    /// [`bind`](Context::bind), where the driver has answered that another context is the current one, or none.
    #[cold]
    fn bind_after(&self, code: Code, current: sys::CUcontext) -> Result<Bound, Fault> {
        check(Call::Open, code)?;
        // SAFETY: `raw` is a live context: this value holds it.
        check(Call::Open, unsafe { sys::cuCtxSetCurrent(self.raw) })?;
        Ok(Bound { previous: current })
    }

    /// Like [`bind`](Context::bind), for calls that a driver in somebody's global capture mode would refuse, and
    /// invalidate that capture.
    pub(crate) fn relaxed(&self) -> Result<Relaxed, Fault> {
        let bound = self.bind()?;
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: `mode` is a place for a mode, holding a valid one.
        check(Call::Open, unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) })?;
        Ok(Relaxed { previous: mode, _bound: bound })
    }

    pub(crate) fn attribute(&self, attribute: sys::CUdevice_attribute) -> Result<u64, Fault> {
        let mut value = 0;
        // SAFETY: `value` is a place for a number, `device` came from the driver.
        check(Call::Open, unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, self.device) })?;
        Ok(u64::try_from(value).unwrap_or(0))
    }

    pub(crate) fn limits(&self) -> Result<Limits, Fault> {
        use sys::CUdevice_attribute as Attribute;
        let mut bytes = 0;
        // SAFETY: `bytes` is a place for a size, `device` came from the driver.
        check(Call::Open, unsafe { sys::cuDeviceTotalMem_v2(&mut bytes, self.device) })?;
        let value = |attribute| self.attribute(attribute);
        Ok(Limits {
            max_buffer: bytes,
            max_blocks: [
                value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
                value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
                value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
            ],
            max_block: [
                value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
                value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
                value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
            ],
            max_threads_per_block: value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            alignment: ALIGNMENT,
        })
    }

    /// The compute capability, as `90` for 9.0.
    #[cfg(feature = "nvrtc")]
    pub(crate) fn architecture(&self) -> Result<u64, Fault> {
        use sys::CUdevice_attribute as Attribute;
        let major = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        Ok(10 * major + minor)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Hold::Primary = self.hold {
            // SAFETY: `open` retained this device's primary context once, and it is released here only. A refusal leaves it
            // retained, which only the end of the process would notice.
            let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if !self.previous.is_null() {
            // SAFETY: `previous` was this thread's current context when the value was made. If its owner has destroyed
            // it meanwhile, the driver refuses, and ours stays current.
            let _ = unsafe { sys::cuCtxSetCurrent(self.previous) };
        }
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // SAFETY: `previous` is a mode that the driver gave, on this very thread: the value is not `Send`.
        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut self.previous) };
    }
}

/// Whether there is a driver that can be used, which also initialises it.
fn present() -> Result<(), Fault> {
    let missing = |message: String| Err(Fault::new(Call::Open, Severity::Call, message));
    // SAFETY: looks whether the dynamic linker finds the driver's library. Its initialisers run, as for any program that
    // uses CUDA.
    if !unsafe { sys::is_culib_present() } {
        return missing("there is no CUDA driver on this machine: its library, libcuda, is not found".into());
    }
    let mut version = 0;
    // SAFETY: `version` is a place for a number; the call needs no initialisation.
    check(Call::Open, unsafe { sys::cuDriverGetVersion(&mut version) })?;
    if version < OLDEST {
        let found = format!("{}.{}", version / 1000, version % 1000 / 10);
        return missing(format!(
            "the driver is for CUDA {found}, and this needs one for 12.8 or later: update it"
        ));
    }
    // SAFETY: no other flags than 0 exist, and repeated calls do nothing.
    check(Call::Open, unsafe { sys::cuInit(0) })
}

/// What the driver's answer to `call` means.
#[inline]
pub(crate) fn check(call: Call, code: impl Into<Code>) -> Result<(), Fault> {
    let code = code.into();
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(fault(call, code)) }
}

#[cold]
pub(crate) fn fault(call: Call, code: impl Into<Code>) -> Fault {
    let code = code.into();
    Fault::new(call, severity(code), code.text())
}

/// The errors that the driver documents as leaving the process's context unusable.
const STICKY: [CUresult; 19] = [
    CUresult::CUDA_ERROR_DEINITIALIZED,
    CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
    CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE,
    CUresult::CUDA_ERROR_CONTAINED,
    CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE,
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
    CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUresult::CUDA_ERROR_ASSERT,
    CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
    CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUresult::CUDA_ERROR_INVALID_PC,
    CUresult::CUDA_ERROR_LAUNCH_FAILED,
    CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK,
    CUresult::CUDA_ERROR_EXTERNAL_DEVICE,
    CUresult::CUDA_ERROR_MPS_CLIENT_TERMINATED,
    CUresult::CUDA_ERROR_UNKNOWN,
];

/// How far an error reaches.
fn severity(code: Code) -> Severity {
    if code == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        Severity::Memory
    } else if STICKY.iter().any(|sticky| code == *sticky) {
        Severity::Sticky
    } else {
        Severity::Call
    }
}

assert_impl_all!(Context: Send, Sync);
