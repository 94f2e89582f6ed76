//! Our streams and those of other libraries, ordered against each other.

#![allow(unsafe_code, reason = "the driver's own calls, as another library makes them")]

use std::time::Duration;

use dacapo::cuda::Cuda;
use dacapo::prelude::*;
use dacapo::{AnyStream, CanWait, Error};
use static_assertions::assert_not_impl_any;

use crate::neighbours::{Beside, MODES, TheirCapture, TheirGate, elsewhere, is_idle, set_raw};
use crate::support::{Gate, block_on, ramp, written};

/// What is not done while a gate is closed.
fn is_late(outcome: Result<impl std::fmt::Debug, Error>) -> bool {
    match outcome {
        Err(Error::Timeout { .. }) => true,
        other => panic!("done before its turn: {other:?}"),
    }
}

const MOMENT: Duration = Duration::from_millis(5);

/// A stream of ours that goes on beside theirs reads what theirs has yet to write.
#[test]
fn what_follows_after_comes_after_all_that_theirs_was_given() {
    let Beside { theirs, device, k, .. } = crate::beside!();
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &[0.0; 1000]);
    let raw = x.raw().unwrap();
    stream.sync().unwrap();
    for round in 1..=20 {
        let gate = TheirGate::close(&theirs);
        set_raw(&theirs, raw.address(), 1000, round as f32);
        stream.after(&theirs).unwrap();
        stream.launch(&k.inc, Grid::covering(1000), (&mut x, Len)).unwrap();
        let read = stream.read_async(&x).unwrap();
        assert!(is_late(stream.read_timeout(&x, MOMENT)));
        gate.open();
        assert_eq!(block_on(read).unwrap(), [round as f32 + 1.0; 1000]);
    }
}

/// A wait that has no place in the order is one that nobody else knows of: not `sync`, and no other stream.
#[test]
fn who_waits_for_the_stream_waits_for_theirs() {
    let Beside { theirs, device, k, .. } = crate::beside!();
    let (mut a, mut b, mut c) =
        (device.stream().unwrap(), device.stream().unwrap(), device.stream().unwrap());
    let mut x = written(&mut a, &[0.0; 1000]);
    let mut y = written(&mut c, &[1.0; 10]);
    let (mut graph, ()) = a.record(|w| w.launch(&k.inc, Grid::covering(1000), (&mut x, Len))).unwrap();
    graph.replay(&mut a).unwrap().wait().unwrap();
    let gate = TheirGate::close(&theirs);
    a.after(&theirs).unwrap();
    assert!(is_late(a.sync_timeout(MOMENT)), "though nothing else was enqueued");
    let ticket = graph.replay(&mut a).unwrap();
    b.launch(&k.inc, Grid::covering(1000), (&mut x, Len)).unwrap();
    assert!(is_late(ticket.wait_timeout(MOMENT)));
    assert!(is_late(b.read_timeout(&x, MOMENT)), "on another slot, by way of the bytes");
    // Who uses other bytes on another slot waits for nobody.
    c.launch(&k.inc, Grid::covering(10), (&mut y, Len)).unwrap();
    assert_eq!(c.read(&y).unwrap(), [2.0; 10]);
    gate.open();
    a.sync().unwrap();
    assert_eq!(b.read(&x).unwrap(), [3.0; 1000]);
}

#[test]
fn what_theirs_is_given_after_before_comes_after_all_that_ours_was() {
    let Beside { theirs, device, k, .. } = crate::beside!();
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &ramp(1000));
    let mut slice = theirs.alloc_zeros::<f32>(1000).unwrap();
    theirs.synchronize().unwrap();
    let raw = x.raw().unwrap();
    for round in 1..=20 {
        let gate = Gate::close(&mut stream);
        stream.launch(&k.inc, Grid::covering(1000), (&mut x, Len)).unwrap();
        stream.before(&theirs).unwrap();
        copy_raw(&theirs, raw.address(), &mut slice);
        assert!(!is_idle(&theirs));
        gate.open();
        let seen = theirs.clone_dtoh(&slice).unwrap();
        assert_eq!(seen, ramp(1000).iter().map(|x| x + round as f32).collect::<Vec<_>>());
        // So that the next launch comes after the copy.
        stream.after(&theirs).unwrap();
    }
}

/// A copy from an address that we gave away.
fn copy_raw(stream: &cudarc::driver::CudaStream, from: u64, to: &mut cudarc::driver::CudaSlice<f32>) {
    use cudarc::driver::{DevicePtrMut, sys};
    let bytes = to.num_bytes();
    let (to, _guard) = to.device_ptr_mut(stream);
    // SAFETY: both ranges have so many bytes, which live until the end of the test.
    crate::neighbours::ok(unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, stream.cu_stream()) });
}

/// A stream that waits for a mark made in a capture is drawn into that capture, with all that is enqueued on it later; and a
/// captured stream that is made to wait for a mark of ours fails its capture.
#[test]
fn e22_e23_a_stream_that_captures_is_refused_and_its_capture_unharmed() {
    let Beside { context, theirs, device, k } = crate::beside!();
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &[0.0; 100]);
    for mode in MODES {
        let mut capture = TheirCapture::begin(&context, mode);
        capture.go_on();
        let (after, before) = (stream.after(&capture.stream), stream.before(&capture.stream));
        for (outcome, name) in [(after, "after"), (before, "before")] {
            let error = outcome.unwrap_err();
            assert!(matches!(error, Error::TheirCapture { operation } if operation == name), "{error}");
        }
        // On another stream of theirs everything goes on meanwhile.
        stream.after(&theirs).unwrap();
        stream.launch(&k.inc, Grid::covering(100), (&mut x, Len)).unwrap();
        stream.before(&theirs).unwrap();
        capture.go_on();
        let captured = capture.end();
        stream.after(&captured).unwrap();
        stream.before(&captured).unwrap();
        captured.synchronize().unwrap();
    }
    assert_eq!(stream.read(&x).unwrap(), [3.0; 100]);
    context.check_err().unwrap();
}

/// The default stream waits for the blocking ones, so that a mark on it breaks the capture of another stream.
#[test]
fn the_default_stream_is_refused_while_a_stream_that_it_waits_for_captures() {
    use cudarc::driver::sys;
    let Beside { context, device, .. } = crate::beside!();
    let mut stream = device.stream().unwrap();
    let default = context.default_stream();
    stream.after(&default).unwrap();
    stream.before(&default).unwrap();
    let mut raw = std::ptr::null_mut();
    // SAFETY: a place for a handle; 0 is a stream that the default stream waits for. A context is current, and the stream lives
    // until the end of the process.
    let blocking = unsafe {
        crate::neighbours::ok(sys::cuStreamCreate(&mut raw, 0));
        context.wrap_borrowed_stream(raw)
    };
    for mode in MODES {
        let mut capture = TheirCapture::begin_on(blocking.clone(), mode);
        capture.go_on();
        for outcome in [stream.after(&default), stream.before(&default)] {
            assert!(matches!(outcome, Err(Error::TheirCapture { .. })), "{outcome:?}");
        }
        capture.go_on();
        capture.end();
    }
    stream.after(&default).unwrap();
    stream.sync().unwrap();
}

#[test]
fn a_stream_of_another_context_is_refused() {
    let Beside { device, k, .. } = crate::beside!();
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &[0.0; 100]);
    let theirs = elsewhere().new_stream().unwrap();
    for outcome in [stream.after(&theirs), stream.before(&theirs)] {
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::WrongContext { object: "stream", .. }), "{error}");
    }
    stream.launch(&k.inc, Grid::covering(100), (&mut x, Len)).unwrap();
    assert_eq!(stream.read(&x).unwrap(), [1.0; 100]);
}

assert_not_impl_any!(Stream<Recording, Cuda>: CanWait);

/// A recording has no moment for an order to hold at: a typed stream does not compile, one of any phase says so.
#[test]
fn a_recording_is_ordered_against_nobody() {
    let Beside { theirs, device, k, .. } = crate::beside!();
    let mut stream = AnyStream::from(device.stream().unwrap());
    let mut x = written(&mut stream, &[0.0; 100]);
    stream.prepare().unwrap();
    stream.after(&theirs).unwrap();
    stream.before(&theirs).unwrap();
    stream.begin().unwrap();
    stream.launch(&k.inc, Grid::covering(100), (&mut x, Len)).unwrap();
    for outcome in [stream.after(&theirs), stream.before(&theirs)] {
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::WrongPhase { .. }), "{error}");
    }
    let mut graph = stream.end().unwrap();
    assert_eq!(graph.nodes(), 1);
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&x).unwrap(), [1.0; 100]);
}

/// Inside a callback nothing may be asked of the driver.
#[test]
fn nothing_is_ordered_from_inside_a_callback() {
    let Beside { theirs, device, .. } = crate::beside!();
    let (mut stream, mut inner) = (device.stream().unwrap(), device.stream().unwrap());
    let (sender, receiver) = std::sync::mpsc::channel();
    // The last reference stays outside: its drop calls the driver.
    let lent = theirs.clone();
    stream
        .host_call(move || {
            let outcomes = [inner.after(&lent), inner.before(&lent)];
            sender.send(outcomes.map(|outcome| matches!(outcome, Err(Error::InCallback { .. })))).unwrap();
        })
        .unwrap();
    stream.sync().unwrap();
    assert_eq!(receiver.recv().unwrap(), [true, true]);
}
