//! The driver's calls, as cudarc declares them but for one thing: what they answer.
//!
//! cudarc's answers are an enum, so that a driver which answers with a number that came after it would make a value that must
//! not exist. Here they are numbers. Calls that are not in the table below are cudarc's.

#![allow(unsafe_code, reason = "calls of the CUDA driver")]
#![allow(non_snake_case, reason = "the driver's names")]

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys as declared;
pub(crate) use cudarc::driver::sys::*;
use declared::CUresult as Answer;

/// What a call of the driver answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(u32);

impl Code {
    /// "The API call requires a newer driver", which cudarc does not know yet.
    const MISSING: Code = Code(36);

    /// What the driver says of it: a sentence, and the name.
    pub(crate) fn text(self) -> String {
        let (sentence, name) = (self.ask("cuGetErrorString"), self.ask("cuGetErrorName"));
        match (sentence, name) {
            (Some(sentence), Some(name)) => format!("{sentence} ({name})"),
            _ if self == Self::MISSING => "the call requires a newer driver".to_owned(),
            _ => format!("error {}, which this driver has no words for", self.0),
        }
    }

    fn ask(self, call: &str) -> Option<String> {
        // SAFETY: both calls take an error and a place for the address of a text.
        let call = unsafe { find::<unsafe extern "C" fn(u32, *mut *const c_char) -> u32>(call) }?;
        let mut text = std::ptr::null();
        // SAFETY: as above; the driver looks the number up, whatever it is.
        let code = unsafe { call(self.0, &mut text) };
        if code != CUresult::CUDA_SUCCESS as u32 || text.is_null() {
            return None;
        }
        // SAFETY: the driver gave the address of a text of its own, with a zero byte at its end, which is never freed.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }
}

impl From<CUresult> for Code {
    fn from(known: CUresult) -> Self {
        Code(known as u32)
    }
}

impl PartialEq<CUresult> for Code {
    fn eq(&self, known: &CUresult) -> bool {
        self.0 == *known as u32
    }
}

/// The driver's function `name`, if it has one.
///
/// # Safety
/// `F` is the type of a pointer to that function.
unsafe fn find<F: Copy>(name: &str) -> Option<F> {
    // SAFETY: opens the driver's library, whose initialisers run, as for any program that uses CUDA.
    let library = unsafe { culib() };
    // SAFETY: the caller's word. The library is never closed, so that the pointer stays one.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.ok().map(|found| *found)
}

/// Defines calls of a library with the arguments that cudarc gives them, which is where their names come from as `declared`.
/// Each is looked for once with `find`, and the answer of one that the library has not is `Code::MISSING`.
macro_rules! calls {
    ($(fn $name:ident($($arg:ident: $of:ty),* $(,)?);)*) => { $(
        #[inline]
        #[allow(clippy::too_many_arguments, reason = "as many as the library wants")]
        pub(crate) unsafe fn $name($($arg: $of),*) -> Code {
            type Call = unsafe extern "C" fn($($of),*) -> u32;
            // Compiles only if cudarc, whose declarations are made from the library's header, has the same arguments.
            const _: unsafe fn($($of),*) -> Answer = declared::$name;
            static FOUND: OnceLock<Option<Call>> = OnceLock::new();
            // SAFETY: the arguments are cudarc's, and the answer is a C enum without negative numbers: an `unsigned int`.
            let found = FOUND.get_or_init(|| unsafe { find::<Call>(stringify!($name)) });
            match found {
                // SAFETY: the caller's word, given for the library's function of this name.
                Some(call) => Code(unsafe { call($($arg),*) }),
                None => Code::MISSING,
            }
        }
    )* };
}
#[cfg(feature = "nvrtc")]
pub(crate) use calls;

calls! {
    fn cuCtxGetCurrent(pctx: *mut CUcontext);
    fn cuCtxGetDevice(device: *mut CUdevice);
    fn cuCtxSetCurrent(ctx: CUcontext);
    fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    fn cuDeviceGetAttribute(pi: *mut c_int, attrib: CUdevice_attribute, dev: CUdevice);
    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice);
    fn cuDevicePrimaryCtxRetain(pctx: *mut CUcontext, dev: CUdevice);
    fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice);
    fn cuDriverGetVersion(driver_version: *mut c_int);
    fn cuEventCreate(event: *mut CUevent, flags: c_uint);
    fn cuEventDestroy_v2(event: CUevent);
    fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: CUevent, end: CUevent);
    fn cuEventRecord(event: CUevent, stream: CUstream);
    fn cuFuncGetAttribute(pi: *mut c_int, attrib: CUfunction_attribute, function: CUfunction);
    fn cuFuncGetParamInfo(
        func: CUfunction, param_index: usize, param_offset: *mut usize, param_size: *mut usize
    );
    fn cuFuncLoad(function: CUfunction);
    fn cuFuncSetAttribute(function: CUfunction, attrib: CUfunction_attribute, value: c_int);
    fn cuGraphAddChildGraphNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, child: CUgraph
    );
    fn cuGraphAddEmptyNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize
    );
    fn cuGraphAddHostNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        params: *const CUDA_HOST_NODE_PARAMS
    );
    fn cuGraphAddKernelNode_v2(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        params: *const CUDA_KERNEL_NODE_PARAMS
    );
    fn cuGraphAddMemcpyNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        copy_params: *const CUDA_MEMCPY3D, ctx: CUcontext
    );
    fn cuGraphAddMemsetNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        memset_params: *const CUDA_MEMSET_NODE_PARAMS, ctx: CUcontext
    );
    fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph);
    fn cuGraphCreate(graph: *mut CUgraph, flags: c_uint);
    fn cuGraphDestroy(graph: CUgraph);
    fn cuGraphExecDestroy(exec: CUgraphExec);
    fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    fn cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong);
    fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
    fn cuGraphNodeGetType(node: CUgraphNode, kind: *mut CUgraphNodeType);
    fn cuInit(flags: c_uint);
    fn cuLaunchHostFunc(stream: CUstream, call: CUhostFn, user_data: *mut c_void);
    fn cuLaunchKernel(
        f: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint,
        block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, stream: CUstream,
        kernel_params: *mut *mut c_void, extra: *mut *mut c_void
    );
    fn cuMemAllocFromPoolAsync(
        dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, stream: CUstream
    );
    fn cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytesize: usize);
    fn cuMemFreeAsync(dptr: CUdeviceptr, stream: CUstream);
    fn cuMemFreeHost(p: *mut c_void);
    fn cuMemFree_v2(dptr: CUdeviceptr);
    fn cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, flags: c_uint);
    fn cuMemHostGetDevicePointer_v2(pdptr: *mut CUdeviceptr, p: *mut c_void, flags: c_uint);
    fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, flags: c_uint);
    fn cuMemHostUnregister(p: *mut c_void);
    fn cuMemPoolCreate(pool: *mut CUmemoryPool, pool_props: *const CUmemPoolProps);
    fn cuMemPoolDestroy(pool: CUmemoryPool);
    fn cuMemcpy2DAsync_v2(p_copy: *const CUDA_MEMCPY2D, stream: CUstream);
    fn cuMemcpyDtoDAsync_v2(
        dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize, stream: CUstream
    );
    fn cuMemcpyDtoHAsync_v2(
        dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize, stream: CUstream
    );
    fn cuMemcpyHtoDAsync_v2(
        dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize, stream: CUstream
    );
    fn cuMemsetD16Async(dst_device: CUdeviceptr, us: c_ushort, n: usize, stream: CUstream);
    fn cuMemsetD32Async(dst_device: CUdeviceptr, ui: c_uint, n: usize, stream: CUstream);
    fn cuMemsetD8Async(dst_device: CUdeviceptr, uc: c_uchar, n: usize, stream: CUstream);
    fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    fn cuModuleLoadDataEx(
        module: *mut CUmodule, image: *const c_void, num_options: c_uint, options: *mut CUjit_option,
        option_values: *mut *mut c_void
    );
    fn cuModuleUnload(module: CUmodule);
    fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode);
    fn cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    fn cuStreamDestroy_v2(stream: CUstream);
    fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    fn cuStreamIsCapturing(stream: CUstream, capture_status: *mut CUstreamCaptureStatus);
    fn cuStreamQuery(stream: CUstream);
    fn cuStreamSynchronize(stream: CUstream);
    fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    fn cuStreamWriteValue64_v2(stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: c_uint);
    fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_compared_by_number_and_any_number_is_one() {
        assert_eq!(Code::from(CUresult::CUDA_ERROR_NOT_READY), CUresult::CUDA_ERROR_NOT_READY);
        assert_ne!(Code(12_345), CUresult::CUDA_ERROR_UNKNOWN);
        assert_eq!(size_of::<Code>(), size_of::<CUresult>());
    }
}
