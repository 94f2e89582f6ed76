//! Contexts and memory of `cudarc`'s, shared with it.

#![allow(unsafe_code, reason = "the driver's own calls, as another library makes them")]

use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};
use dacapo::cuda::{Cuda, CudaOptions};
use dacapo::prelude::*;
use dacapo::{AnyStream, DeviceOptions, Error, Hindrance};

use crate::neighbours::{Beside, MODES, TheirCapture, TheirGate, elsewhere, end, is_idle, ok, set};
use crate::support::{Buf, Gate, Kernels, block_on, device_with, eventually, ramp, written};

/// Where a slice is.
fn address(slice: &CudaSlice<f32>) -> u64 {
    let stream = slice.stream().clone();
    slice.device_ptr(&stream).0
}

fn kept(refused: dacapo::Refused<Buf<f32>>) -> (Buf<f32>, Hindrance) {
    match refused.into_parts() {
        (buffer, Error::Kept { operation: "into_cudarc", because }) => (buffer, because),
        (_, other) => panic!("{other}"),
    }
}

/// Whether what was lent on `stream` is back: each slice holds its stream.
fn holders(stream: &Arc<CudaStream>) -> usize {
    Arc::strong_count(stream)
}

/// Weights that are on the device already are uploaded a second time, or copied.
#[test]
fn a_slice_becomes_a_buffer_without_a_copy_and_comes_back() {
    let Beside { theirs, device, k, .. } = crate::beside!();
    let mut stream = device.stream().unwrap();
    let before = device.memory_usage().held;
    let slice = theirs.clone_htod(&ramp(1000)).unwrap();
    let at = address(&slice);
    let mut x = Buffer::from_cudarc(&mut stream, slice).unwrap();
    assert_eq!((x.len(), x.raw().unwrap().address()), (1000, at));
    let report = device.memory_report();
    assert_eq!((report.adopted.buffers, report.adopted.bytes), (1, 4000));
    assert_eq!((device.memory_usage().adopted, device.memory_usage().held), (4000, before));
    assert!(report.to_string().contains("of other libraries"), "{report}");
    stream.launch(&k.inc, Grid::covering(1000), (&mut x, Len)).unwrap();
    let slice = x.into_cudarc().unwrap();
    assert_eq!((address(&slice), slice.len()), (at, 1000));
    assert_eq!(device.memory_report().adopted.buffers, 0);
    assert_eq!(theirs.clone_dtoh(&slice).unwrap(), ramp(1000).iter().map(|x| x + 1.0).collect::<Vec<_>>());
    // And again.
    let x = Buffer::from_cudarc(&mut stream, slice).unwrap();
    assert_eq!(stream.read(&x).unwrap()[999], 1001.0);
    drop(x);
    assert_eq!(device.memory_usage().adopted, 0);
    assert!(eventually(|| holders(&theirs) == 1), "the slice went back to its owner");
}

/// What a slice's stream has yet to write is part of what the slice holds.
#[test]
fn what_the_slices_stream_was_given_comes_first() {
    let Beside { theirs, device, k, .. } = crate::beside!();
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut slice = theirs.alloc_zeros::<f32>(1000).unwrap();
    for round in 1..=20 {
        let gate = TheirGate::close(&theirs);
        set(&theirs, &mut slice, round as f32);
        let mut x = Buffer::from_cudarc(&mut a, slice).unwrap();
        // The first use is on another slot.
        b.launch(&k.inc, Grid::covering(1000), (&mut x, Len)).unwrap();
        let read = b.read_async(&x).unwrap();
        assert!(matches!(b.read_timeout(&x, Duration::from_millis(2)), Err(Error::Timeout { .. })));
        gate.open();
        assert_eq!(block_on(read).unwrap(), [round as f32 + 1.0; 1000]);
        slice = x.into_cudarc().unwrap();
    }
}

/// `cudarc` keeps an event for the last use on any stream: to ask the slice's own stream alone misses the others.
#[test]
fn what_other_streams_did_with_the_slice_comes_first() {
    let Beside { context, theirs, device, .. } = crate::beside!();
    let other = context.new_stream().unwrap();
    let mut stream = device.stream().unwrap();
    let mut slice = theirs.alloc_zeros::<f32>(1000).unwrap();
    for round in 1..=20 {
        theirs.synchronize().unwrap();
        let gate = TheirGate::close(&other);
        set(&other, &mut slice, round as f32);
        assert!(is_idle(&theirs));
        let x = Buffer::from_cudarc(&mut stream, slice).unwrap();
        let read = stream.read_async(&x).unwrap();
        assert!(matches!(stream.sync_timeout(Duration::from_millis(2)), Err(Error::Timeout { .. })));
        gate.open();
        assert_eq!(block_on(read).unwrap(), [round as f32; 1000]);
        slice = x.into_cudarc().unwrap();
    }
    context.check_err().unwrap();
}

/// The slice's stream and, by the slice's event, every other one of theirs waits for what we have in flight.
#[test]
fn what_is_done_with_a_slice_that_came_back_comes_after_all_that_we_did() {
    let Beside { context, theirs, device, k } = crate::beside!();
    let others = [theirs.clone(), context.new_stream().unwrap()];
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut slice = theirs.alloc_zeros::<f32>(1000).unwrap();
    for round in 0..20 {
        let other = &others[round % 2];
        let mut copy = other.alloc_zeros::<f32>(1000).unwrap();
        other.synchronize().unwrap();
        let mut x = Buffer::from_cudarc(&mut a, slice).unwrap();
        let gate = Gate::close(&mut a);
        a.launch(&k.inc, Grid::covering(1000), (&mut x, Len)).unwrap();
        b.launch(&k.inc, Grid::covering(1000), (&mut x, Len)).unwrap();
        slice = x.into_cudarc().unwrap();
        other.memcpy_dtod(&slice, &mut copy).unwrap();
        assert!(!is_idle(other));
        gate.open();
        assert_eq!(other.clone_dtoh(&copy).unwrap(), [2.0 * (round + 1) as f32; 1000]);
    }
    context.check_err().unwrap();
}

/// Memory that is not the device's own counts under no limit, and is not moved or given to the next buffer.
#[test]
fn adopted_memory_is_under_no_limit_stays_where_it_is_and_is_nobody_elses() {
    let Beside { context, theirs, .. } = crate::beside!();
    let options = DeviceOptions::<Cuda>::new().memory_limit(4 << 20);
    let device = Device::open(options.backend(CudaOptions::new().context(context.clone()))).unwrap();
    let mut stream = device.stream().unwrap();
    let slice = theirs.alloc_zeros::<f32>(4 << 20).unwrap();
    let at = address(&slice);
    let mut x = Buffer::from_cudarc(&mut stream, slice).unwrap();
    stream.fill(&mut x, 3.0).unwrap();
    let small: Vec<_> = (0..40).map(|_| written(&mut stream, &ramp(10_000))).collect();
    drop(small.into_iter().step_by(2).collect::<Vec<_>>());
    stream.compact().unwrap();
    stream.memory_cleanup().unwrap();
    assert_eq!(x.raw().unwrap().address(), at);
    assert!(stream.read(&x).unwrap().iter().all(|x| *x == 3.0));
    assert!(matches!(stream.alloc::<f32>(4 << 20), Err(Error::OutOfMemory { .. })));
    drop(x);
    let y = stream.alloc::<f32>(100).unwrap();
    assert!(!(at..at + (16 << 20)).contains(&y.raw().unwrap().address()));
    assert!(eventually(|| holders(&theirs) == 1));
}

/// A graph that holds an address and not its memory replays into somebody else's.
#[test]
fn e01_a_graph_keeps_an_adopted_slice_whose_buffer_is_dropped() {
    let Beside { theirs, device, k, .. } = crate::beside!();
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let x = Buffer::from_cudarc(&mut a, theirs.clone_htod(&ramp(1000)).unwrap()).unwrap();
    let mut y = b.alloc::<f32>(1000).unwrap();
    let grid = Grid::covering(1000);
    let (mut graph, ()) = a.record(|w| w.launch(&k.add1, grid, (&x, Len, &mut y, Len))).unwrap();
    drop(x);
    assert_eq!(device.memory_report().adopted.buffers, 1);
    let canary = theirs.clone_htod(&vec![-1.0f32; 1000]).unwrap();
    for _ in 0..3 {
        b.fill(&mut y, 0.0).unwrap();
        graph.replay(&mut b).unwrap();
        assert_eq!(a.read(&y).unwrap(), ramp(1000).iter().map(|x| x + 1.0).collect::<Vec<_>>());
    }
    assert_eq!(theirs.clone_dtoh(&canary).unwrap(), [-1.0; 1000]);
    drop(canary);
    graph.replay(&mut b).unwrap();
    drop(graph);
    assert_eq!(device.memory_report().adopted.buffers, 0);
    assert!(eventually(|| holders(&theirs) == 1));
    assert_eq!(b.read(&y).unwrap()[0], 2.0);
}

/// Freed while in flight, the bytes are the next owner's before we have read them.
#[test]
fn a_slice_whose_buffer_is_dropped_in_flight_goes_back_when_that_has_passed() {
    let Beside { theirs, device, k, .. } = crate::beside!();
    let mut stream = device.stream().unwrap();
    let mut y = stream.alloc::<f32>(1000).unwrap();
    let slice = theirs.clone_htod(&ramp(1000)).unwrap();
    let x = Buffer::from_cudarc(&mut stream, slice).unwrap();
    stream.sync().unwrap();
    let gate = Gate::close(&mut stream);
    stream.launch(&k.add1, Grid::covering(1000), (&x, Len, &mut y, Len)).unwrap();
    drop(x);
    assert_eq!(holders(&theirs), 2, "the slice is held while the work is in flight");
    gate.open();
    assert_eq!(stream.read(&y).unwrap(), ramp(1000).iter().map(|x| x + 1.0).collect::<Vec<_>>());
    assert!(eventually(|| holders(&theirs) == 1));
}

/// To free on a stream that captures puts the release into somebody's graph, or ends the capture.
#[test]
fn a_slice_is_not_given_back_while_its_stream_captures() {
    let Beside { context, theirs, device, .. } = crate::beside!();
    let mut stream = device.stream().unwrap();
    for mode in MODES {
        let lent = context.new_stream().unwrap();
        let x = Buffer::from_cudarc(&mut stream, lent.clone_htod(&ramp(1000)).unwrap()).unwrap();
        let y = Buffer::from_cudarc(&mut stream, theirs.clone_htod(&ramp(1000)).unwrap()).unwrap();
        stream.sync().unwrap();
        let mut capture = TheirCapture::begin_on(lent.clone(), mode);
        capture.go_on();
        let captured = holders(&lent);
        drop(x);
        // Given back after the other, which so has been looked at and left.
        drop(y);
        assert!(eventually(|| holders(&theirs) == 1));
        assert_eq!(holders(&lent), captured);
        capture.go_on();
        drop(capture.end());
        assert!(eventually(|| holders(&lent) == 1), "given back once the capture has ended");
    }
    context.check_err().unwrap();
}

/// A slice that cannot be taken is its owner's as before; and whoever captures goes on.
#[test]
fn a_refused_slice_is_given_back_as_it_was() {
    let Beside { context, theirs, device, .. } = crate::beside!();
    let mut stream = device.stream().unwrap();
    let foreign = elsewhere().new_stream().unwrap();
    let (slice, error) =
        Buffer::from_cudarc(&mut stream, foreign.clone_htod(&ramp(10)).unwrap()).unwrap_err().into_parts();
    assert!(matches!(error, Error::WrongContext { object: "slice", .. }), "{error}");
    assert_eq!(foreign.clone_dtoh(&slice).unwrap(), ramp(10));

    let whole = theirs.clone_htod(&ramp(100)).unwrap();
    // SAFETY: a part of `whole`, which is leaked below before that is freed.
    let part = unsafe { theirs.upgrade_device_ptr::<f32>(address(&whole) + 4, 10) };
    let (part, error) = Buffer::from_cudarc(&mut stream, part).unwrap_err().into_parts();
    assert!(matches!(error, Error::Unsupported { operation: "from_cudarc", .. }), "{error}");
    assert_eq!(theirs.clone_dtoh(&part).unwrap(), ramp(11)[1..]);
    part.leak();

    let mut stream = AnyStream::from(stream);
    stream.prepare().unwrap();
    stream.begin().unwrap();
    let (whole, error) = Buffer::from_cudarc(&mut stream, whole).unwrap_err().into_parts();
    assert!(matches!(error, Error::WrongPhase { .. }), "{error}");
    stream.abort().unwrap();
    for mode in MODES {
        let lent = context.new_stream().unwrap();
        let slice = lent.clone_htod(&ramp(100)).unwrap();
        lent.synchronize().unwrap();
        let mut capture = TheirCapture::begin_on(lent, mode);
        capture.go_on();
        let (slice, error) = Buffer::from_cudarc(&mut stream, slice).unwrap_err().into_parts();
        assert!(matches!(error, Error::TheirCapture { operation: "from_cudarc" }), "{error}");
        capture.go_on();
        let lent = capture.end();
        assert_eq!(lent.clone_dtoh(&slice).unwrap(), ramp(100));
    }
    assert_eq!(theirs.clone_dtoh(&whole).unwrap(), ramp(100));
    context.check_err().unwrap();
}

/// The slice's own stream captures nothing, but a capture of another one has written it: the event that tells of it would draw
/// our stream into that capture.
#[test]
fn e22_a_slice_that_an_open_capture_has_written_is_refused() {
    let Beside { context, theirs, device, .. } = crate::beside!();
    let mut stream = device.stream().unwrap();
    for mode in MODES {
        let capturing = context.new_stream().unwrap();
        // SAFETY: written before it is read.
        let mut slice = unsafe { theirs.alloc::<f32>(100) }.unwrap();
        theirs.synchronize().unwrap();
        capturing.begin_capture(mode).unwrap();
        set(&capturing, &mut slice, 1.0);
        let (mut slice, error) = Buffer::from_cudarc(&mut stream, slice).unwrap_err().into_parts();
        assert!(matches!(error, Error::TheirCapture { operation: "from_cudarc" }), "{error}");
        set(&capturing, &mut slice, 2.0);
        let (graph, nodes) = end(&capturing);
        assert_eq!(nodes, 2);
        // SAFETY: a graph of the driver's, used here for the last time.
        ok(unsafe { cudarc::driver::sys::cuGraphDestroy(graph) });
        stream.sync().unwrap();
        // Its own drop waits for events of a capture that has ended, and `cudarc` parks what the driver says to that.
        drop(slice);
        assert!(context.check_err().is_err());
    }
}

#[test]
fn a_buffer_that_cannot_be_given_back_says_why_and_stays_usable() {
    let Beside { theirs, device, k, .. } = crate::beside!();
    let mut stream = device.stream().unwrap();
    let own = written(&mut stream, &ramp(10));
    let (own, because) = kept(own.into_cudarc().unwrap_err());
    assert_eq!(because, Hindrance::NotAdopted);
    assert_eq!(stream.read(&own).unwrap(), ramp(10));

    let mut x = Buffer::from_cudarc(&mut stream, theirs.clone_htod(&ramp(1024)).unwrap()).unwrap();
    let tail = x.split_off(512).unwrap();
    let (tail, because) = kept(tail.into_cudarc().unwrap_err());
    assert_eq!(because, Hindrance::Part);
    let (x, because) = kept(x.into_cudarc().unwrap_err());
    assert_eq!(because, Hindrance::Part);
    drop((x, tail));
    let mut x = Buffer::from_cudarc(&mut stream, theirs.clone_htod(&ramp(1024)).unwrap()).unwrap();
    let nothing = x.split_off(1024).unwrap();
    let (x, because) = kept(x.into_cudarc().unwrap_err());
    assert_eq!(because, Hindrance::Shared);
    drop(nothing);

    let raw = x.raw().unwrap();
    let (mut x, because) = kept(x.into_cudarc().unwrap_err());
    assert_eq!(because, Hindrance::Held);
    drop(raw);
    let mut recording = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    recording.launch(&k.inc, Grid::covering(1024), (&mut x, Len)).unwrap();
    let (x, because) = kept(x.into_cudarc().unwrap_err());
    assert_eq!(because, Hindrance::Held);
    let (graph, _) = recording.end().unwrap();
    let (x, because) = kept(x.into_cudarc().unwrap_err());
    assert_eq!(because, Hindrance::InGraph);
    drop(graph);

    let x = x.cast::<u32>().unwrap();
    let (x, error) = x.into_cudarc().unwrap_err().into_parts();
    assert!(matches!(error, Error::Kept { because: Hindrance::Cast, .. }), "{error}");
    let mut x = x.cast::<f32>().unwrap();
    // What should have written it failed, which nobody could tell of a slice.
    assert!(stream.launch(&k.inc, Grid::blocks((1, 1, 1 << 20)), (&mut x, Len)).is_err());
    let (mut x, error) = x.into_cudarc().unwrap_err().into_parts();
    assert!(matches!(error, Error::Tainted { .. }), "{error}");
    stream.fill(&mut x, 5.0).unwrap();
    let mut capture = TheirCapture::begin_on(theirs.clone(), MODES[0]);
    let (x, error) = x.into_cudarc().unwrap_err().into_parts();
    assert!(matches!(error, Error::TheirCapture { operation: "into_cudarc" }), "{error}");
    capture.go_on();
    capture.end();
    assert_eq!(stream.read(&x).unwrap(), [5.0; 1024]);
    assert_eq!(theirs.clone_dtoh(&x.into_cudarc().unwrap()).unwrap(), [5.0; 1024]);
}

#[test]
fn a_slice_without_elements_is_a_buffer_without_elements() {
    let Beside { theirs, device, k, .. } = crate::beside!();
    let mut stream = device.stream().unwrap();
    let mut x = Buffer::from_cudarc(&mut stream, theirs.null::<f32>().unwrap()).unwrap();
    assert!(x.is_empty());
    stream.write(&mut x, &[]).unwrap();
    stream.launch(&k.inc, Grid::covering(1), (&mut x, Len)).unwrap();
    let (mut graph, ()) = stream.record(|w| w.launch(&k.inc, Grid::covering(1), (&mut x, Len))).unwrap();
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&x).unwrap(), []);
    drop(graph);
    assert!(x.into_cudarc().unwrap().is_empty());
    let x = Buffer::from_cudarc(&mut stream, theirs.null::<f32>().unwrap()).unwrap();
    drop(x);
    assert!(eventually(|| holders(&theirs) == 1));
}

/// The program's handle may be the first to go, or the last; and what lives on keeps the context.
#[test]
fn a_context_lives_until_the_last_of_the_device_is_gone() {
    let Some(_) = device_with(DeviceOptions::new()) else { return };
    for own_goes_first in [true, false] {
        for context in [CudaContext::new(0).unwrap(), CudaContext::new_non_primary(0, 0).unwrap()] {
            let device = Device::<Cuda>::from_context(context.clone()).unwrap();
            let weak = Arc::downgrade(&context);
            let own = Some(context).filter(|_| !own_goes_first);
            let k = Kernels::load(&device);
            let mut stream = device.stream().unwrap();
            let mut x = written(&mut stream, &ramp(1000));
            let grid = Grid::covering(1000);
            let (mut graph, ()) = stream.record(|w| w.launch(&k.inc, grid, (&mut x, Len))).unwrap();
            drop(device);
            // Elsewhere, where no context is current.
            let (sum, rest) = std::thread::spawn(move || {
                graph.replay(&mut stream).unwrap();
                stream.launch(&k.inc, grid, (&mut x, Len)).unwrap();
                let read = stream.read_async(&x).unwrap();
                (block_on(read).unwrap()[0], (graph, stream, x, k))
            })
            .join()
            .unwrap();
            assert_eq!(sum, 3.0);
            assert!(weak.upgrade().is_some());
            drop(rest);
            let left = usize::from(own.is_some());
            assert!(eventually(|| weak.strong_count() == left), "{} are left", weak.strong_count());
            if let Some(context) = own {
                let theirs = context.new_stream().unwrap();
                assert_eq!(theirs.clone_dtoh(&theirs.clone_htod(&[7u8]).unwrap()).unwrap(), [7]);
            }
        }
    }
}

/// In a context of their own, that is not the device's primary one.
#[test]
fn slices_of_another_than_the_primary_context_are_taken_by_a_device_in_that() {
    let Some(_) = device_with(DeviceOptions::new()) else { return };
    let context = CudaContext::new_non_primary(0, 0).unwrap();
    let theirs = context.new_stream().unwrap();
    let device = Device::<Cuda>::from_context(context.clone()).unwrap();
    let k = Kernels::load(&device);
    let mut stream = device.stream().unwrap();
    let mut x = Buffer::from_cudarc(&mut stream, theirs.clone_htod(&ramp(1000)).unwrap()).unwrap();
    stream.launch(&k.inc, Grid::covering(1000), (&mut x, Len)).unwrap();
    stream.before(&theirs).unwrap();
    stream.after(&theirs).unwrap();
    assert_eq!(stream.read(&x).unwrap()[0], 2.0);
    let slice = x.into_cudarc().unwrap();
    assert_eq!(theirs.clone_dtoh(&slice).unwrap()[999], 1001.0);
    drop((slice, k, stream, device));
    assert!(eventually(|| Arc::strong_count(&context) == 2), "this handle, and the stream's");
}

/// Adopted and dropped by several threads at once, with work in flight everywhere.
#[test]
fn slices_come_and_go_on_every_thread() {
    let Beside { context, theirs, device, k } = crate::beside!();
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (context, device, k) = (&context, &device, &k);
            scope.spawn(move || {
                let own = context.new_stream().unwrap();
                let mut stream = device.stream().unwrap();
                let mut slice = own.alloc_zeros::<f32>(1000 + n).unwrap();
                for round in 1..=100 {
                    let mut x = Buffer::from_cudarc(&mut stream, slice).unwrap();
                    stream.launch(&k.inc, Grid::covering(x.len()), (&mut x, Len)).unwrap();
                    slice = x.into_cudarc().unwrap();
                    assert!(own.clone_dtoh(&slice).unwrap().iter().all(|x| *x == round as f32));
                    let mut y =
                        Buffer::from_cudarc(&mut stream, own.alloc_zeros::<f32>(500).unwrap()).unwrap();
                    stream.launch(&k.inc, Grid::covering(500), (&mut y, Len)).unwrap();
                }
            });
        }
    });
    assert!(eventually(|| device.memory_usage().adopted == 0));
    drop(theirs);
    context.check_err().unwrap();
}
