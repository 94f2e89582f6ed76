//! Other users of the driver in the process: `cudarc`, and whoever calls it raw.

#![allow(unsafe_code, reason = "the driver's own calls, as another library makes them")]

use std::ffi::c_void;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, sys};
use dacapo::cuda::Cuda;
use dacapo::prelude::*;

use crate::support::{Kernels, device_with};

pub fn ok(code: sys::CUresult) {
    assert_eq!(code, sys::CUresult::CUDA_SUCCESS);
}

/// Every mode of a capture, the strictest first.
pub const MODES: [sys::CUstreamCaptureMode; 3] = [
    sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
    sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
];

/// A program that uses `cudarc` already, and a device in its context.
pub struct Beside {
    pub context: Arc<CudaContext>,
    pub theirs: Arc<CudaStream>,
    pub device: Device<Cuda>,
    pub k: Kernels,
}

/// `None` where there is no device, and none is required.
pub fn beside() -> Option<Beside> {
    // Until theirs is there, so that the context is not ended and made anew.
    let first = device_with(dacapo::DeviceOptions::new())?;
    let context = CudaContext::new(0).unwrap();
    drop(first);
    let theirs = context.new_stream().unwrap();
    let device = Device::<Cuda>::from_context(context.clone()).unwrap();
    let k = Kernels::load(&device);
    Some(Beside { context, theirs, device, k })
}

/// Another context of the first device, which is there: the same one for all tests, since the driver takes long to end one.
pub fn elsewhere() -> &'static Arc<CudaContext> {
    static ELSEWHERE: OnceLock<Arc<CudaContext>> = OnceLock::new();
    ELSEWHERE.get_or_init(|| CudaContext::new_non_primary(0, 0).unwrap())
}

/// Unpacks it, or ends the test.
#[macro_export]
macro_rules! beside {
    () => {
        match $crate::neighbours::beside() {
            Some(found) => found,
            None => return,
        }
    };
}

/// Holds a stream of theirs up until it is opened, or dropped; not for ever, so that a call that waits for it cannot hang,
/// and its test fails.
pub struct TheirGate(#[allow(dead_code, reason = "its drop is what opens the gate")] Sender<()>);

impl TheirGate {
    pub fn close(stream: &CudaStream) -> Self {
        let (sender, receiver) = channel::<()>();
        let receiver = Box::into_raw(Box::new(receiver));
        stream.context().bind_to_thread().unwrap();
        // SAFETY: the stream is alive, and `wait` takes the pointer to a receiver back, which the driver calls once.
        ok(unsafe { sys::cuLaunchHostFunc(stream.cu_stream(), Some(wait), receiver.cast()) });
        TheirGate(sender)
    }

    pub fn open(self) {}
}

/// # Safety
/// `receiver` came from [`TheirGate::close`], and this is the only call with it.
unsafe extern "C" fn wait(receiver: *mut c_void) {
    // SAFETY: by the contract of this function.
    let receiver = unsafe { Box::from_raw(receiver.cast::<Receiver<()>>()) };
    let _ = receiver.recv_timeout(Duration::from_secs(10));
}

/// Sets every element, on `stream`, in the way of `cudarc`.
pub fn set(stream: &CudaStream, slice: &mut CudaSlice<f32>, value: f32) {
    let len = slice.len();
    stream.context().bind_to_thread().unwrap();
    let (start, _guard) = slice.device_ptr_mut(stream);
    set_raw(stream, start, len, value);
}

/// Sets `len` elements from `start` on, as somebody who was given an address.
pub fn set_raw(stream: &CudaStream, start: u64, len: usize, value: f32) {
    stream.context().bind_to_thread().unwrap();
    // SAFETY: the caller's memory has so many elements; the stream is alive.
    ok(unsafe { sys::cuMemsetD32Async(start, value.to_bits(), len, stream.cu_stream()) });
}

/// Whether a stream of theirs has nothing left to do.
pub fn is_idle(stream: &CudaStream) -> bool {
    stream.context().bind_to_thread().unwrap();
    // SAFETY: the stream is alive.
    match unsafe { sys::cuStreamQuery(stream.cu_stream()) } {
        sys::CUresult::CUDA_ERROR_NOT_READY => false,
        code => {
            ok(code);
            true
        }
    }
}

/// A capture of theirs, which is to have the nodes that they put there and no other.
pub struct TheirCapture {
    pub stream: Arc<CudaStream>,
    memory: CudaSlice<f32>,
    start: u64,
    nodes: usize,
}

impl TheirCapture {
    /// Begins one on a stream of its own, on this thread.
    pub fn begin(context: &Arc<CudaContext>, mode: sys::CUstreamCaptureMode) -> Self {
        let stream = context.new_stream().unwrap();
        Self::begin_on(stream, mode)
    }

    pub fn begin_on(stream: Arc<CudaStream>, mode: sys::CUstreamCaptureMode) -> Self {
        let memory = stream.alloc_zeros::<f32>(64).unwrap();
        let start = memory.device_ptr(&stream).0;
        stream.synchronize().unwrap();
        // SAFETY: a live stream that captures nothing.
        ok(unsafe { sys::cuStreamBeginCapture_v2(stream.cu_stream(), mode) });
        TheirCapture { stream, memory, start, nodes: 0 }
    }

    /// Captures one more node.
    pub fn go_on(&mut self) {
        // Without the slice's events, which were recorded outside.
        set_raw(&self.stream, self.start, self.memory.len(), 1.0);
        self.nodes += 1;
    }

    /// Ends it well, with its own nodes and no other.
    pub fn end(self) -> Arc<CudaStream> {
        let (graph, nodes) = end(&self.stream);
        assert_eq!(nodes, self.nodes);
        // SAFETY: a graph of the driver's, used here for the last time.
        ok(unsafe { sys::cuGraphDestroy(graph) });
        self.stream
    }
}

/// Ends a capture; returns the graph and how many nodes it has.
pub fn end(stream: &CudaStream) -> (sys::CUgraph, usize) {
    let (mut graph, mut nodes) = (std::ptr::null_mut(), 0);
    // SAFETY: a place for a handle, and a stream that captures, on the thread that began it.
    ok(unsafe { sys::cuStreamEndCapture(stream.cu_stream(), &mut graph) });
    // SAFETY: a place for a number; without room for nodes, only that is given.
    ok(unsafe { sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &mut nodes) });
    (graph, nodes)
}
