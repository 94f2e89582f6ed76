//! Loaded kernels.

#![allow(unsafe_code, reason = "calls of the CUDA driver")]

use std::ffi::{CString, c_void};
use std::hint::cold_path;
use std::sync::Arc;

use cudarc::driver::CudaFunction;
use parking_lot::Mutex;
use smallvec::SmallVec;
use static_assertions::assert_impl_all;

use crate::backend::command::ArgsRef;
use crate::backend::cuda::context::{Context, check, fault};
use crate::backend::cuda::memory::address;
#[cfg(feature = "nvrtc")]
use crate::backend::cuda::nvrtc;
use crate::backend::cuda::retire::Retired;
use crate::backend::cuda::source::{Form, Source};
use crate::backend::cuda::sys::{self, CUfunction_attribute_enum as Attribute, CUjit_option_enum as Jit};
#[cfg(feature = "nvrtc")]
use crate::backend::cuda::text::{SourceText, Unit};
use crate::backend::cuda::{Cuda, Machine};
use crate::backend::fault::Severity;
use crate::backend::{Call, Fault, Region};
use crate::kernel::program::Sources;
use crate::kernel::signature::ParamKind;

/// A kernel of a CUDA device.
///
/// In the order of its fields: what a launch needs is side by side.
#[repr(C)]
pub struct CudaCode {
    pub(crate) function: Function,
    /// How many buffers a launch is given, and how many bytes of scalars.
    buffers: usize,
    scalars: usize,
    params: SmallVec<[Param; FEW_PARAMS]>,
    /// What keeps the function; `None` only while it is being dropped. Behind a lock only to be `Sync`.
    keep: Mutex<Option<Retired>>,
    machine: Arc<Machine>,
}

/// A function of a loaded module, which must outlive its uses.
#[derive(Clone, Copy)]
pub(crate) struct Function {
    pub(crate) raw: sys::CUfunction,
    /// Bytes of shared memory that a launch gives each block.
    pub(crate) shared: u32,
}

/// A loaded image.
pub(crate) struct Module(pub(crate) sys::CUmodule);

// SAFETY: `raw` names an object of the driver, which any thread may use; `shared` is a number.
unsafe impl Send for Function {}
// SAFETY: as for `Send`; the driver's calls on it may be made by several threads at once.
unsafe impl Sync for Function {}
// SAFETY: the handle names an object of the driver, which any thread may use and unload.
unsafe impl Send for Module {}
// SAFETY: as for `Send`; the driver's calls on it may be made by several threads at once.
unsafe impl Sync for Module {}

/// As many parameters as a signature can have.
const MOST_PARAMS: usize = 32;

/// As many parameters as most kernels have.
const FEW_PARAMS: usize = 8;

/// Where the value of a parameter is.
#[derive(Clone, Copy)]
enum Param {
    /// In the list of the buffers' addresses, at this place.
    Buffer(u32),
    /// Among the scalars, from this byte on.
    Scalar(u32),
}

/// The driver's two ways of being given parameters, one of which is null.
pub(crate) type Params = (*mut *mut c_void, *mut *mut c_void);

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
            code if code == sys::CUresult::CUDA_ERROR_NOT_FOUND => {
                return Err(refuse(format!("the source has no function `{entry}`; is it `extern \"C\"`?")));
            }
            code => check(Call::Load, code)?,
        }
        // SAFETY: the function is one of a loaded module. Loaded here, it does not wait for anybody at its first launch.
        check(Call::Load, unsafe { sys::cuFuncLoad(raw) })?;
        Ok(Function { raw, shared: 0 })
    }
}

impl CudaCode {
    pub(crate) fn load(machine: &Arc<Machine>, source: &Source, sources: &Sources) -> Result<Self, Fault> {
        source.keep_promise(sources)?;
        let _relaxed = machine.context.relaxed()?;
        let module = match &source.form {
            Form::Image(image) => Module::load(image)?,
            #[cfg(feature = "nvrtc")]
            Form::Text(text) => compiled(machine, text, &sources.name)?,
        };
        let mut code = Self::new(machine, Retired::Module(module.0));
        code.function = module.function(&source.entry)?;
        code.examine(sources)
    }

    /// A function of another library's, which keeps its module.
    pub(crate) fn adopt(
        machine: &Arc<Machine>,
        function: CudaFunction,
        sources: &Sources,
    ) -> Result<Self, Fault> {
        let _relaxed = machine.context.relaxed()?;
        let raw = function.cu_function();
        let mut code = Self::new(machine, Retired::Function(function));
        // SAFETY: the function is one of a module that `code` keeps loaded.
        check(Call::Load, unsafe { sys::cuFuncLoad(raw) })?;
        code.function = Function { raw, shared: 0 };
        code.examine(sources)
    }

    /// Without a function yet, but with what will keep it.
    fn new(machine: &Arc<Machine>, keep: Retired) -> Self {
        let function = Function { raw: std::ptr::null_mut(), shared: 0 };
        CudaCode {
            function,
            buffers: 0,
            scalars: 0,
            params: SmallVec::new(),
            keep: Mutex::new(Some(keep)),
            machine: machine.clone(),
        }
    }

    /// Compares the function with what the program says of it.
    fn examine(mut self, sources: &Sources) -> Result<Self, Fault> {
        self.check_block(sources)?;
        self.share(sources)?;
        self.place(sources)?;
        Ok(self)
    }

    /// Compares the block with what this function, with its registers, can have.
    fn check_block(&self, sources: &Sources) -> Result<(), Fault> {
        let most = self.attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
        let threads = sources.block.iter().fold(1u64, |product, size| product.saturating_mul((*size).into()));
        if threads <= most {
            return Ok(());
        }
        let name = &sources.name;
        let message = format!("`{name}` has blocks of {threads} threads, and its function can have {most}");
        Err(Fault::new(Call::Load, Severity::Call, message))
    }

    /// Compares the shared memory of a block with what this device allows, and makes room for what a launch adds.
    fn share(&mut self, sources: &Sources) -> Result<(), Fault> {
        use sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN as ALLOWED;
        let own = self.attribute(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
        let allowed = self.machine.context.attribute(ALLOWED)?;
        let (name, added) = (&sources.name, sources.shared_memory as u64);
        let sum = own.saturating_add(added);
        let small = i32::try_from(added).ok().filter(|_| sum <= allowed);
        let Some(bytes) = small else {
            let message = format!(
                "`{name}` has {sum} bytes of shared memory in a block, {added} of them by `.shared_memory(..)`, and this device allows {allowed}"
            );
            return Err(Fault::new(Call::Load, Severity::Call, message));
        };
        let room = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        if self.attribute(room)? < added {
            // SAFETY: the function is one of a loaded module. Whoever else has it may launch with no less than before.
            check(Call::Load, unsafe { sys::cuFuncSetAttribute(self.function.raw, room, bytes) })?;
        }
        self.function.shared = bytes.unsigned_abs();
        Ok(())
    }

    fn attribute(&self, attribute: Attribute) -> Result<u64, Fault> {
        let mut value = 0;
        // SAFETY: `value` is a place for a number, and the function is one of a loaded module.
        check(Call::Load, unsafe { sys::cuFuncGetAttribute(&mut value, attribute, self.function.raw) })?;
        Ok(u64::try_from(value).unwrap_or(0))
    }

    /// Compares the function's parameters with the signature's, and notes what each one is given.
    fn place(&mut self, sources: &Sources) -> Result<(), Fault> {
        let name = &sources.name;
        let refuse = |message: String| Err(Fault::new(Call::Load, Severity::Call, message));
        for (index, kind) in sources.params.iter().enumerate() {
            let Some(bytes) = self.param(index)? else {
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
            let place = |place: usize| {
                let large = format!("`{name}`: the parameters before parameter {index} have {place} bytes");
                u32::try_from(place).map_err(|_| Fault::new(Call::Load, Severity::Call, large))
            };
            match kind {
                ParamKind::Buffer(_) => {
                    self.params.push(Param::Buffer(place(self.buffers)?));
                    self.buffers += 1;
                }
                ParamKind::Scalar(_) | ParamKind::Len(_) => {
                    self.params.push(Param::Scalar(place(self.scalars)?));
                    self.scalars += bytes;
                }
            }
        }
        if self.param(sources.params.len())?.is_some() {
            let expected = sources.params.len();
            return refuse(format!(
                "`{name}`: the function has more than the {expected} parameters of the signature"
            ));
        }
        Ok(())
    }

    /// The size of a parameter of the function, if it has so many.
    ///
    /// Every driver that a device is opened on tells them (the call came with 12.4); where one does not, the function is
    /// refused, since a launch would read as many bytes as it likes. The one behind the last is asked for too, so that a tool
    /// that lists refused calls shows one for each function.
    fn param(&self, index: usize) -> Result<Option<usize>, Fault> {
        let (mut offset, mut bytes) = (0, 0);
        // SAFETY: both are places for sizes, and the function is one of a loaded module.
        match unsafe { sys::cuFuncGetParamInfo(self.function.raw, index, &mut offset, &mut bytes) } {
            code if code == sys::CUresult::CUDA_ERROR_INVALID_VALUE => Ok(None),
            code => check(Call::Load, code).map(|()| Some(bytes)),
        }
    }
}

impl CudaCode {
    /// Calls `call` with the parameters of a launch, in the driver's way: the address of each one's value.
    pub(crate) fn with_params<T>(
        &self,
        args: ArgsRef<'_, Cuda>,
        call: impl FnOnce(Params) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let ArgsRef { regions, scalars } = args;
        if regions.len() <= FEW_PARAMS {
            return self.with_places(locate(regions, &mut [0; FEW_PARAMS])?, scalars, call);
        }
        cold_path();
        self.with_places(locate(regions, &mut [0; MOST_PARAMS])?, scalars, call)
    }

    /// [`with_params`](CudaCode::with_params), of buffers that start at `places`.
    #[inline]
    pub(crate) fn with_places<T>(
        &self,
        places: &[u64],
        scalars: &[u8],
        call: impl FnOnce(Params) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        // With it, every address below is that of a value.
        if places.len() != self.buffers || scalars.len() != self.scalars {
            cold_path();
            return Err(Fault::new(
                Call::Launch,
                Severity::Call,
                "a launch with other arguments than its kernel's",
            ));
        }
        let value = |param: &Param| -> *mut c_void {
            match *param {
                Param::Buffer(place) => places.as_ptr().wrapping_add(place as usize).cast_mut().cast(),
                Param::Scalar(start) => scalars.as_ptr().wrapping_add(start as usize).cast_mut().cast(),
            }
        };
        let params = self.params.as_slice();
        let fill = |values: &mut [*mut c_void]| {
            params.iter().zip(values).for_each(|(param, place)| *place = value(param));
        };
        if params.len() <= FEW_PARAMS {
            let mut values = [std::ptr::null_mut(); FEW_PARAMS];
            fill(&mut values);
            return call((values.as_mut_ptr(), std::ptr::null_mut()));
        }
        cold_path();
        let mut values = [std::ptr::null_mut(); MOST_PARAMS];
        fill(&mut values);
        call((values.as_mut_ptr(), std::ptr::null_mut()))
    }
}

/// Where the regions start, in as many of the `places`.
#[inline]
fn locate<'p>(regions: &[Region<Cuda>], places: &'p mut [u64]) -> Result<&'p [u64], Fault> {
    for (place, region) in places.iter_mut().zip(regions) {
        (*place, _) = address(Call::Launch, region)?;
    }
    Ok(places.get(..regions.len()).unwrap_or_default())
}

impl Drop for CudaCode {
    fn drop(&mut self) {
        self.keep.get_mut().take().into_iter().for_each(|keep| self.machine.retire(keep));
    }
}

/// The module of CUDA C++: from the cache, if that has it, else compiled and kept there.
#[cfg(feature = "nvrtc")]
fn compiled(machine: &Machine, text: &SourceText, name: &str) -> Result<Module, Fault> {
    let unit = Unit::new(text, machine.context.architecture()?, nvrtc::version()?);
    let entry = machine.cache.as_ref().and_then(|cache| Some((cache, unit.key()?)));
    let kept = entry.as_ref().and_then(|(cache, key)| cache.find(key));
    // An entry that is no code is as bad as a damaged one.
    if let Some(module) = kept.and_then(|image| Module::load(&terminated(image)).ok()) {
        return Ok(module);
    }
    let image = nvrtc::compile(&unit, name)?;
    if let Some((cache, key)) = entry {
        cache.keep(&key, &image);
    }
    Module::load(&terminated(image))
}

/// The image with a zero byte behind it.
#[cfg(feature = "nvrtc")]
fn terminated(mut image: Vec<u8>) -> Vec<u8> {
    image.push(0);
    image
}

/// Unloads a module that no launch uses.
pub(crate) fn unload(_context: &Context, module: &Module) {
    // SAFETY: the handle came from `cuModuleLoadDataEx`, and by the caller's word nothing uses it any more.
    let _ = unsafe { sys::cuModuleUnload(module.0) };
}

assert_impl_all!(CudaCode: Send, Sync);
