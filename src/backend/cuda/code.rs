//! Loaded kernels.

#![allow(unsafe_code, reason = "calls of the CUDA driver")]

use std::ffi::{CString, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUfunction_attribute_enum as Attribute, CUjit_option_enum as Jit};
use static_assertions::assert_impl_all;

use crate::backend::cuda::context::{Context, check, fault};
use crate::backend::cuda::memory::address;
use crate::backend::cuda::retire::Retired;
use crate::backend::cuda::source::{Form, Source};
use crate::backend::cuda::{Cuda, Machine};
use crate::backend::fault::Severity;
use crate::backend::{ArgBlock, Call, Fault};
use crate::kernel::program::Sources;
use crate::kernel::signature::ParamKind;

/// A kernel of a CUDA device.
pub struct CudaCode {
    pub(crate) function: Function,
    params: Vec<Param>,
    /// The size of the parameter block.
    bytes: usize,
    module: Module,
    machine: Arc<Machine>,
}

/// A function of a loaded module, which must outlive its uses.
#[derive(Clone, Copy)]
pub(crate) struct Function(pub(crate) sys::CUfunction);

/// A loaded image.
pub(crate) struct Module(pub(crate) sys::CUmodule);

// SAFETY: the handle names an object of the driver, which any thread may use.
unsafe impl Send for Function {}
// SAFETY: as for `Send`; the driver's calls on it may be made by several threads at once.
unsafe impl Sync for Function {}
// SAFETY: the handle names an object of the driver, which any thread may use and unload.
unsafe impl Send for Module {}
// SAFETY: as for `Send`; the driver's calls on it may be made by several threads at once.
unsafe impl Sync for Module {}

/// As many parameters as a signature can have.
pub(crate) const MOST_PARAMS: usize = 32;

/// Where a parameter goes.
struct Param {
    kind: ParamKind,
    offset: usize,
}

impl ParamKind {
    fn bytes(&self) -> usize {
        match self {
            ParamKind::Buffer(_) | ParamKind::Len(_) => size_of::<u64>(),
            ParamKind::Scalar(bytes) => *bytes,
        }
    }
}

impl Module {
    /// Loads an image with a zero byte behind it; the context is bound.
    pub(crate) fn load(image: &[u8]) -> Result<Self, Fault> {
        debug_assert_eq!(image.last(), Some(&0), "the driver reads text to its zero byte");
        let mut log = vec![0u8; 8 << 10];
        let mut options = [Jit::CU_JIT_ERROR_LOG_BUFFER, Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(log.len())];
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is a place for a handle; `image` is text with a zero byte at its end, or a cubin, whose header says how
        // long it is; there are as many values as options, and each is of the kind that its option takes: a buffer, and
        // its size in the place of an address.
        let code = unsafe {
            sys::cuModuleLoadDataEx(
                &mut raw,
                image.as_ptr().cast(),
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if code == sys::CUresult::CUDA_SUCCESS {
            return Ok(Module(raw));
        }
        let met = fault(Call::Load, code);
        let said = log.split(|byte| *byte == 0).next().unwrap_or_default();
        let severity = if met.is_sticky() { Severity::Sticky } else { Severity::Call };
        let message = format!("{}: {}", met.message(), String::from_utf8_lossy(said).trim());
        Err(Fault::new(Call::Load, severity, message))
    }

    /// The function `entry`, with its code on the device.
    pub(crate) fn function(&self, entry: &str) -> Result<Function, Fault> {
        let refuse = |message: String| Fault::new(Call::Load, Severity::Call, message);
        let name = CString::new(entry).map_err(|_| refuse(format!("`{entry}` is no name of a function")))?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is a place for a handle, the module is loaded, and the name is text with a zero byte at its end.
        match unsafe { sys::cuModuleGetFunction(&mut raw, self.0, name.as_ptr()) } {
            sys::CUresult::CUDA_ERROR_NOT_FOUND => {
                return Err(refuse(format!("the source has no function `{entry}`; is it `extern \"C\"`?")));
            }
            code => check(Call::Load, code)?,
        }
        // SAFETY: the function is one of a loaded module. Loaded here, it does not wait for anybody at its first launch.
        check(Call::Load, unsafe { sys::cuFuncLoad(raw) })?;
        Ok(Function(raw))
    }
}

impl CudaCode {
    pub(crate) fn load(machine: &Arc<Machine>, source: &Source, sources: &Sources) -> Result<Self, Fault> {
        let _relaxed = machine.context.relaxed()?;
        let module = match &source.form {
            Form::Image(image) => Module::load(image)?,
            #[cfg(feature = "nvrtc")]
            Form::Text(text) => {
                let name = &sources.name;
                let image =
                    crate::backend::cuda::nvrtc::compile(text, name, machine.context.architecture()?)?;
                Module::load(&image)?
            }
        };
        let mut code = CudaCode {
            function: Function(std::ptr::null_mut()),
            params: Vec::new(),
            bytes: 0,
            module,
            machine: machine.clone(),
        };
        code.function = code.module.function(&source.entry)?;
        code.check_block(sources)?;
        code.place(sources)?;
        Ok(code)
    }

    /// Compares the block with what this function, with its registers, can have.
    fn check_block(&self, sources: &Sources) -> Result<(), Fault> {
        let mut most = 0;
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
        // SAFETY: `most` is a place for a number, and the function is one of a loaded module.
        check(Call::Load, unsafe { sys::cuFuncGetAttribute(&mut most, attribute, self.function.0) })?;
        let threads = sources.block.iter().fold(1u64, |product, size| product.saturating_mul((*size).into()));
        if threads <= u64::try_from(most).unwrap_or(0) {
            return Ok(());
        }
        let name = &sources.name;
        let message = format!("`{name}` has blocks of {threads} threads, and its function can have {most}");
        Err(Fault::new(Call::Load, Severity::Call, message))
    }

    /// Compares the function's parameters with the signature's, and notes where each one goes.
    fn place(&mut self, sources: &Sources) -> Result<(), Fault> {
        let name = &sources.name;
        let refuse = |message: String| Err(Fault::new(Call::Load, Severity::Call, message));
        for (index, kind) in sources.params.iter().enumerate() {
            let Some((offset, bytes)) = self.param(index)? else {
                let (found, expected) = (index, sources.params.len());
                return refuse(format!(
                    "`{name}`: the function has {found} parameters, the signature {expected}"
                ));
            };
            if bytes != kind.bytes() {
                let expected = kind.bytes();
                return refuse(format!(
                    "`{name}`: parameter {index} has {bytes} bytes in the function and {expected} in the signature"
                ));
            }
            self.params.push(Param { kind: *kind, offset });
            self.bytes = self.bytes.max(offset + bytes);
        }
        if self.param(sources.params.len())?.is_some() {
            let expected = sources.params.len();
            return refuse(format!(
                "`{name}`: the function has more than the {expected} parameters of the signature"
            ));
        }
        Ok(())
    }

    /// Offset and size of a parameter of the function, if it has so many.
    fn param(&self, index: usize) -> Result<Option<(usize, usize)>, Fault> {
        let (mut offset, mut bytes) = (0, 0);
        // SAFETY: both are places for sizes, and the function is one of a loaded module.
        match unsafe { sys::cuFuncGetParamInfo(self.function.0, index, &mut offset, &mut bytes) } {
            sys::CUresult::CUDA_ERROR_INVALID_VALUE => Ok(None),
            code => check(Call::Load, code).map(|()| Some((offset, bytes))),
        }
    }

    /// Writes the parameter block of a launch.
    pub(crate) fn write_params(&self, args: &ArgBlock<Cuda>, block: &mut Vec<u8>) -> Result<(), Fault> {
        block.clear();
        block.resize(self.bytes, 0);
        let mut regions = args.regions.iter();
        let mut scalars = args.scalars.as_slice();
        let missing = || Fault::new(Call::Launch, Severity::Call, "a launch without all of its arguments");
        for param in &self.params {
            let bytes = param.kind.bytes();
            let place = block.get_mut(param.offset..param.offset + bytes).ok_or_else(missing)?;
            if let ParamKind::Buffer(_) = param.kind {
                let (start, _) = address(Call::Launch, regions.next().ok_or_else(missing)?)?;
                place.copy_from_slice(&start.to_ne_bytes());
            } else {
                let (value, rest) = scalars.split_at_checked(bytes).ok_or_else(missing)?;
                place.copy_from_slice(value);
                scalars = rest;
            }
        }
        Ok(())
    }
}

impl CudaCode {
    /// Points `places` to the value of each parameter: to `addresses`, where those of the buffers are put, and to the scalars
    /// of `args`.
    #[inline]
    pub(crate) fn point(
        &self,
        args: &ArgBlock<Cuda>,
        addresses: &mut [u64; MOST_PARAMS],
        places: &mut [*mut c_void; MOST_PARAMS],
    ) -> Result<(), Fault> {
        let missing = || Fault::new(Call::Launch, Severity::Call, "a launch without all of its arguments");
        let mut buffers = args.regions.iter().zip(addresses);
        let mut scalars = args.scalars.as_slice();
        for (param, place) in self.params.iter().zip(places) {
            *place = if let ParamKind::Buffer(_) = param.kind {
                let (region, start) = buffers.next().ok_or_else(missing)?;
                (*start, _) = address(Call::Launch, region)?;
                std::ptr::from_mut(start).cast()
            } else {
                let (value, rest) = scalars.split_at_checked(param.kind.bytes()).ok_or_else(missing)?;
                scalars = rest;
                value.as_ptr().cast_mut().cast()
            };
        }
        Ok(())
    }
}

impl Drop for CudaCode {
    fn drop(&mut self) {
        self.machine.retire(Retired::Module(self.module.0));
    }
}

/// Unloads a module that no launch uses.
pub(crate) fn unload(_context: &Context, module: &Module) {
    // SAFETY: the handle came from `cuModuleLoadDataEx`, and by the caller's word nothing uses it any more.
    let _ = unsafe { sys::cuModuleUnload(module.0) };
}

assert_impl_all!(CudaCode: Send, Sync);
