//! Beside other users of the driver in one process.

#![allow(unsafe_code, reason = "the driver's own calls, as another library makes them")]

use std::sync::mpsc::channel;

use cudarc::driver::sys;
use dacapo::AllocationMode;
use dacapo::prelude::*;

use crate::support::{Kernels, block_on, ramp, written};

fn ok(code: sys::CUresult) {
    assert_eq!(code, sys::CUresult::CUDA_SUCCESS);
}

/// The primary context of the first device, current on this thread.
fn foreign_context() -> sys::CUcontext {
    let mut context = std::ptr::null_mut();
    // SAFETY: a place for a handle, and a device that is there: the caller has one open.
    ok(unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, 0) });
    // SAFETY: a live context, which is never released.
    ok(unsafe { sys::cuCtxSetCurrent(context) });
    context
}

/// A stream that waits for no default stream, as every library has its own.
fn foreign_stream() -> sys::CUstream {
    let mut stream = std::ptr::null_mut();
    // SAFETY: a place for a handle; 1 is the flag for it.
    ok(unsafe { sys::cuStreamCreate(&mut stream, 1) });
    stream
}

/// Everything that a stream and its device can do.
fn everything(device: &Device<dacapo::Cuda>) {
    let k = Kernels::load(device);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = written(&mut a, &ramp(100_000));
    let grid = Grid::covering(100_000);
    a.launch(&k.inc, grid, (&mut x, Len)).unwrap();
    b.launch(&k.inc, grid, (&mut x, Len)).unwrap();
    let mut own = b.allocating(AllocationMode::Dedicated, |work| work.alloc::<f32>(100_000)).unwrap();
    b.copy(&x, &mut own).unwrap();
    b.fill(&mut own, 4.0).unwrap();
    b.write(&mut own, ramp(100_000)).unwrap();
    let (mut graph, ()) = a
        .record(|work| {
            work.launch(&k.inc, grid, (&mut x, Len))?;
            work.write(x.slice_mut(..3)?, &[1.0; 3])?;
            work.host_call(|| ())
        })
        .unwrap();
    graph.replay(&mut a).unwrap().wait().unwrap();
    a.host_call(|| ()).unwrap();
    a.profile(|work| work.launch(&k.inc, grid, (&mut x, Len))).unwrap();
    assert_eq!(block_on(a.read_async(&x).unwrap()).unwrap()[..4], [2.0, 2.0, 2.0, 8.0]);
    drop((graph, own));
    a.compact().unwrap();
    b.sync().unwrap();
    a.memory_cleanup().unwrap();
}

/// In the global mode, a call of any thread that the driver deems unsafe fails, and ends the capture.
#[test]
fn somebody_elses_capture_in_global_mode_outlives_everything_that_we_do() {
    let (device, _) = crate::device!();
    let ((begun, wait_begun), (finish, wait_finish)) = (channel(), channel::<()>());
    std::thread::scope(|scope| {
        let theirs = scope.spawn(move || {
            foreign_context();
            let stream = foreign_stream();
            let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
            // SAFETY: a live stream that captures nothing.
            ok(unsafe { sys::cuStreamBeginCapture_v2(stream, mode) });
            begun.send(()).unwrap();
            wait_finish.recv().unwrap();
            let mut graph = std::ptr::null_mut();
            // SAFETY: a place for a handle, and the stream that captures, on the thread that began it.
            let code = unsafe { sys::cuStreamEndCapture(stream, &mut graph) };
            (code, graph.is_null())
        });
        wait_begun.recv().unwrap();
        everything(&device);
        // A device of its own comes and goes meanwhile.
        let other = Device::<dacapo::Cuda>::new(0).unwrap();
        everything(&other);
        drop(other);
        finish.send(()).unwrap();
        assert_eq!(theirs.join().unwrap(), (sys::CUresult::CUDA_SUCCESS, false));
    });
}

/// The driver in capture mode fails whatever a stranger synchronises; a recording of ours is a list.
#[test]
fn a_stranger_may_synchronize_the_context_while_we_record() {
    let (device, k) = crate::device!();
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<f32>(100).unwrap();
    foreign_context();
    let (mut graph, ()) = stream
        .record(|work| {
            work.launch(&k.inc, Grid::covering(100), (&mut x, Len))?;
            // SAFETY: takes nothing; a context is current.
            ok(unsafe { sys::cuCtxSynchronize() });
            work.launch(&k.inc, Grid::covering(100), (&mut x, Len))
        })
        .unwrap();
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&x).unwrap(), [2.0; 100]);
}

/// A library that finds another context than the one that it made current works on somebody else's memory.
#[test]
fn the_context_that_was_current_is_current_afterwards() {
    let (device, _) = crate::device!();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut theirs = std::ptr::null_mut();
            // SAFETY: a place for a handle, and the first device; the new context becomes current.
            ok(unsafe { sys::cuCtxCreate_v2(&mut theirs, 0, 0) });
            everything(&device);
            let mut current = std::ptr::null_mut();
            // SAFETY: a place for a handle.
            ok(unsafe { sys::cuCtxGetCurrent(&mut current) });
            assert!(current == theirs);
            // SAFETY: a context of this test's, used here for the last time.
            ok(unsafe { sys::cuCtxDestroy_v2(theirs) });
        });
        thread.join().unwrap();
    });
}
