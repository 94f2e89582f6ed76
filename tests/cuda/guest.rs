//! Beside other users of the driver in one process.

#![allow(unsafe_code, reason = "the driver's own calls, as another library makes them")]

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use cudarc::driver::{CudaContext, sys};
use dacapo::cuda::Cuda;
use dacapo::prelude::*;
use dacapo::{AllocationMode, CaptureOptions};

use crate::neighbours::{Beside, MODES, TheirCapture, elsewhere, ok};
use crate::support::{Kernels, block_on, device_with, eventually, ramp, written};

/// Everything that a stream and its device can do; afterwards it is gone, but for the device.
fn everything(device: &Device<Cuda>) {
    let k = Kernels::load(device);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    eager(device, &k, &mut a, &mut b);
    recorded(&k, &mut a, &mut b);
    abandoned(device, &k);
    // Half of them go, so that the rest is moved.
    let all: Vec<_> = (0..100).map(|n| written(&mut a, &vec![n as f32; 16 << 10])).collect();
    let kept: Vec<_> = all.into_iter().enumerate().filter(|(n, _)| n % 9 == 0).collect();
    a.compact().unwrap();
    for (n, x) in &kept {
        assert!(b.read(x).unwrap().iter().all(|x| *x == *n as f32));
    }
    drop(kept);
    drop(k);
    a.memory_cleanup().unwrap();
    b.sync().unwrap();
}

fn eager(
    device: &Device<Cuda>,
    k: &Kernels,
    a: &mut Stream<NoCapture, Cuda>,
    b: &mut Stream<NoCapture, Cuda>,
) {
    let mut x = written(a, &ramp(100_000));
    let grid = Grid::covering(100_000);
    a.launch(&k.inc, grid, (&mut x, Len)).unwrap();
    b.launch(&k.inc, grid, (&mut x, Len)).unwrap();
    let modes = [AllocationMode::Pooled, AllocationMode::Persistent, AllocationMode::Dedicated];
    for mode in modes {
        let (mut own, zero) = b
            .allocating(mode, |work| Ok((work.alloc_scratch::<f32>(100_000)?, work.alloc::<f32>(1000)?)))
            .unwrap();
        b.copy(&x, &mut own).unwrap();
        assert_eq!(b.read(&own).unwrap()[..2], [3.0, 4.0]);
        b.fill(&mut own, 4.0).unwrap();
        assert_eq!(block_on(a.read_async(&own).unwrap()).unwrap()[99_999], 4.0);
        b.write(&mut own, ramp(100_000)).unwrap();
        let layout = dacapo::Layout::pitched(&[10, 100], 1000).unwrap();
        b.write_pitched(&mut own, &layout, ramp(1000)).unwrap();
        assert_eq!(b.read_pitched(&own, &layout).unwrap(), ramp(1000));
        assert_eq!(a.read(&zero).unwrap(), [0.0; 1000]);
    }
    let (called, wait_called) = channel();
    a.host_call(move || called.send(()).unwrap()).unwrap();
    wait_called.recv().unwrap();
    a.profile(|work| work.launch(&k.inc, grid, (&mut x, Len))).unwrap();
    let source = written(b, &ramp(10));
    let (from, mut to) = (b.alloc::<u32>(4).unwrap(), b.alloc::<u32>(4).unwrap());
    b.launch(&k.gather, Grid::covering(4), (&from, Len, &mut to, Len, &[3, 2, 1, 0], Len)).unwrap();
    assert_eq!(b.read(&to).unwrap(), [0; 4]);
    drop(source);
    device.memory_report();
}

fn recorded(k: &Kernels, a: &mut Stream<NoCapture, Cuda>, b: &mut Stream<NoCapture, Cuda>) {
    let grid = Grid::covering(100_000);
    let mut x = written(a, &ramp(100_000));
    let (mut child, ()) = a.record(|work| work.launch(&k.inc, grid, (&mut x, Len))).unwrap();
    let step = |work: &mut Work<'_, Cuda>, x: &mut Buffer<f32, Cuda>, child: &mut Graph<Cuda>| {
        let mut y = work.alloc::<f32>(100_000)?;
        work.launch(&k.add1, grid, (&*x, Len, &mut y, Len))?;
        work.copy(&y, &mut *x)?;
        work.write(x.slice_mut(..3)?, &[1.0; 3])?;
        work.host_call(|| ())?;
        work.embed(child)
    };
    let options = CaptureOptions::default();
    let (mut graph, ()) = a.record_with(options, |work| step(work, &mut x, &mut child)).unwrap();
    child.replay(b).unwrap();
    graph.replay(a).unwrap().wait().unwrap();
    graph.replay(b).unwrap();
    assert_eq!(a.read(&x).unwrap()[..4], [2.0, 2.0, 2.0, 9.0]);
    // The warm-up executes.
    let (mut warm, ()) = a.capture(|work| work.launch(&k.inc, grid, (&mut x, Len))).unwrap();
    warm.replay(a).unwrap();
    drop((child, graph));
    assert_eq!(b.read(&x).unwrap()[..4], [4.0, 4.0, 4.0, 11.0]);
}

fn abandoned(device: &Device<Cuda>, k: &Kernels) {
    let mut x = written(&mut device.stream().unwrap(), &ramp(1000));
    let grid = Grid::covering(1000);
    let mut aborted = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    aborted.launch(&k.inc, grid, (&mut x, Len)).unwrap();
    let cancelled = aborted.abort().prepare().unwrap();
    drop(cancelled.cancel().prepare().unwrap().begin().unwrap());
    let evicted = device.stream().unwrap().prepare().unwrap();
    device.evict(evicted.window().unwrap()).unwrap();
    drop(evicted);
    assert_eq!(device.stream().unwrap().read(&x).unwrap(), ramp(1000));
}

/// A thread of another library's, with a capture that is open until it is told to end it.
struct Neighbour {
    more: Sender<()>,
    captured: Receiver<()>,
}

impl Neighbour {
    /// Captures one more node, beside whatever is going on.
    fn capture_more(&self) {
        self.more.send(()).unwrap();
        self.captured.recv().unwrap();
    }
}

/// Runs `work` while a capture in `mode` is open on another thread; that ends well, with its own nodes and no other.
fn beside_a_capture(
    context: &Arc<CudaContext>,
    flags: u32,
    mode: sys::CUstreamCaptureMode,
    work: impl FnOnce(&Neighbour),
) {
    let ((more, wait_more), (tell_captured, captured)) = (channel::<()>(), channel());
    std::thread::scope(|scope| {
        let theirs = scope.spawn(move || {
            context.bind_to_thread().unwrap();
            let mut raw = std::ptr::null_mut();
            // SAFETY: a place for a handle; a context is current, and the stream lives until the end of the process.
            let stream = unsafe {
                ok(sys::cuStreamCreate(&mut raw, flags));
                context.wrap_borrowed_stream(raw)
            };
            let mut capture = TheirCapture::begin_on(stream, mode);
            capture.go_on();
            tell_captured.send(()).unwrap();
            for () in wait_more {
                capture.go_on();
                tell_captured.send(()).unwrap();
            }
            capture.end();
        });
        captured.recv().unwrap();
        let neighbour = Neighbour { more, captured };
        work(&neighbour);
        drop(neighbour);
        theirs.join().unwrap();
    });
    context.check_err().unwrap();
}

/// In the global mode, a call of any thread that the driver deems unsafe fails, and ends the capture; in the mode of one thread
/// a wait for the whole context still does.
#[test]
fn thr_01_a_foreign_capture_in_any_mode_outlives_everything_that_we_do() {
    let Beside { context, device, theirs, .. } = crate::beside!();
    for mode in MODES {
        // Before the capture: `cudarc`'s own allocations would end one in the global mode.
        let lent = [theirs.alloc_zeros::<f32>(1000).unwrap(), theirs.alloc_zeros::<f32>(1000).unwrap()];
        let mut back = None;
        beside_a_capture(&context, 1, mode, |neighbour| {
            everything(&device);
            neighbour.capture_more();
            // A device of its own comes and goes meanwhile, in the same context, and one that finds it by itself.
            let other = Device::<Cuda>::from_context(context.clone()).unwrap();
            everything(&other);
            neighbour.capture_more();
            drop(other);
            everything(&Device::<Cuda>::new(0).unwrap());
            neighbour.capture_more();
            // Memory that is theirs, too.
            let mut stream = device.stream().unwrap();
            let adopt = |slice| Buffer::from_cudarc(&mut stream, slice).unwrap();
            let [x, y] = lent.map(adopt);
            stream.after(&theirs).unwrap();
            stream.before(&theirs).unwrap();
            assert_eq!(stream.read(&x).unwrap(), [0.0; 1000]);
            drop(y);
            assert!(eventually(|| Arc::strong_count(&theirs) == 2), "one slice went back meanwhile");
            back = Some(x.into_cudarc().unwrap());
        });
        drop(back);
    }
    assert!(eventually(|| device.memory_usage().adopted == 0));
}

/// A call that names the default stream fails while a stream that this one waits for captures, and ends that capture.
#[test]
fn str_01_nothing_that_we_do_touches_the_default_stream() {
    let Beside { context, device, .. } = crate::beside!();
    for mode in [MODES[0], MODES[1]] {
        beside_a_capture(&context, 0, mode, |neighbour| {
            everything(&device);
            neighbour.capture_more();
            everything(&Device::<Cuda>::new(0).unwrap());
        });
    }
}

/// Zeroing or a copy on the default stream has no order with a stream that does not wait for that: large ones lose the race.
#[test]
fn str_01_zeroing_and_pageable_writes_are_never_seen_half_done() {
    let Some(device) = device_with(dacapo::DeviceOptions::new().staging_limit(0)) else { return };
    let k = Kernels::load(&device);
    let mut stream = device.stream().unwrap();
    let small = 256 << 10;
    let (mut from, mut to) = (stream.alloc::<f32>(small).unwrap(), stream.alloc::<f32>(small).unwrap());
    let (mut graph, ()) = stream
        .record(|work| work.launch(&k.add1, Grid::covering(small), (&from, Len, &mut to, Len)))
        .unwrap();
    let large = 16 << 20;
    for round in 0..200 {
        let mut zeroed = stream.alloc::<f32>(large).unwrap();
        stream.launch(&k.inc, Grid::covering(large), (&mut zeroed, Len)).unwrap();
        stream.write(&mut from, vec![round as f32; small]).unwrap();
        graph.replay(&mut stream).unwrap();
        assert!(stream.read(&to).unwrap().iter().all(|x| *x == round as f32 + 1.0), "round {round}");
        let sampled = stream.read(zeroed.slice(round * 1000..round * 1000 + 100_000).unwrap()).unwrap();
        let last = stream.read(zeroed.slice(large - 1000..).unwrap()).unwrap();
        assert!(sampled.iter().chain(&last).all(|x| *x == 1.0), "round {round}");
        // Whoever gets these bytes next must find zeros again.
        stream.fill(&mut zeroed, -7.0).unwrap();
    }
}

/// An event that was recorded in a capture and is waited for when the buffer goes parks an error, which the next unrelated call
/// returns.
#[test]
fn str_08_a_buffer_that_a_window_used_leaves_no_error_behind() {
    let Beside { context, theirs, device, k } = crate::beside!();
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let grid = Grid::covering(1000);
    let clean = |step: &str| context.check_err().unwrap_or_else(|error| panic!("{step}: {error:?}"));
    let mut own = written(&mut a, &ramp(1000));
    let mut lent = Buffer::from_cudarc(&mut a, theirs.clone_htod(&ramp(1000)).unwrap()).unwrap();
    clean("adopted");
    let mut recording = a.prepare().unwrap().begin().unwrap();
    recording.launch(&k.inc, grid, (&mut own, Len)).unwrap();
    recording.launch(&k.inc, grid, (&mut lent, Len)).unwrap();
    clean("recorded");
    let (mut graph, mut a) = recording.end().unwrap();
    assert_eq!(graph.nodes(), 2, "no events");
    graph.replay(&mut a).unwrap();
    clean("replayed");
    drop(graph);
    clean("the graph is gone");
    assert_eq!(b.read(&lent).unwrap()[0], 2.0);
    drop((own, lent));
    clean("the buffers are gone");
    let mut fresh = b.alloc::<f32>(1000).unwrap();
    b.launch(&k.inc, grid, (&mut fresh, Len)).unwrap();
    b.sync().unwrap();
    assert_eq!(theirs.clone_dtoh(&theirs.clone_htod(&[1u8]).unwrap()).unwrap(), [1]);
    assert!(eventually(|| Arc::strong_count(&theirs) == 1));
    clean("the slice is back");
}

/// The driver in capture mode fails whatever a stranger synchronises; a recording of ours is a list.
#[test]
fn thr_01_a_stranger_may_synchronize_the_context_while_we_record() {
    let Beside { context, device, k, .. } = crate::beside!();
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<f32>(100).unwrap();
    let synchronize = || context.synchronize().unwrap();
    let (mut graph, ()) = stream
        .record(|work| {
            work.launch(&k.inc, Grid::covering(100), (&mut x, Len))?;
            synchronize();
            work.launch(&k.inc, Grid::covering(100), (&mut x, Len))?;
            std::thread::scope(|scope| scope.spawn(synchronize).join().unwrap());
            work.launch(&k.inc, Grid::covering(100), (&mut x, Len))
        })
        .unwrap();
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&x).unwrap(), [3.0; 100]);
}

/// A library that finds another context than the one that it made current works on somebody else's memory.
#[test]
fn the_context_that_was_current_is_current_afterwards() {
    let Beside { context, theirs, device, .. } = crate::beside!();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            elsewhere().bind_to_thread().unwrap();
            everything(&device);
            everything(&Device::<Cuda>::from_context(context.clone()).unwrap());
            let mut stream = device.stream().unwrap();
            stream.after(&theirs).unwrap();
            stream.before(&theirs).unwrap();
            let mut current = std::ptr::null_mut();
            // SAFETY: a place for a handle.
            ok(unsafe { sys::cuCtxGetCurrent(&mut current) });
            assert!(current == elsewhere().cu_ctx());
        });
        thread.join().unwrap();
    });
}
