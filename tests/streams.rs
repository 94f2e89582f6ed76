//! Streams of a host device that is told to fail, or that nobody steps any more. What else streams promise is in the
//! conformance suite.

mod support;

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use dacapo::host::Severity;
use dacapo::prelude::*;
use dacapo::{Call, Error};
use support::{Kernels, all, eventually, filled, grid, poll, stepped, working};

/// The stream is in no capture, and a whole capture works on it.
fn assert_usable(stream: &mut Stream, k: &Kernels) {
    let status = stream.device().captures();
    assert!(!status.is_capturing(stream.id()));
    let x = filled(stream, 4.0);
    let mut y = filled(stream, 0.0);
    let (mut graph, ()) = stream.capture(|work| work.launch(&k.add1, grid(), (&x, &mut y))).unwrap();
    stream.fill(&mut y, 0.0).unwrap();
    graph.replay(stream).unwrap();
    assert!(all(&stream.read(&y).unwrap(), 5.0));
}

#[test]
fn a_refused_begin_gives_a_usable_stream_back() {
    let (device, k) = working(1);
    let prepared = device.stream().unwrap().prepare().unwrap();
    device.faults().fail_nth(Call::Begin, 1, Severity::Call);
    let (mut stream, error) = prepared.begin().unwrap_err().into_parts();
    assert!(matches!(error, Error::Driver { call: Call::Begin, .. }), "{error}");
    assert_usable(&mut stream, &k);
}

#[test]
fn a_refused_end_gives_a_usable_stream_back() {
    for call in [Call::End, Call::Seal, Call::Allocate] {
        let (device, k) = working(1);
        let mut stream = device.stream().unwrap();
        let (x, mut y) = (filled(&mut stream, 1.0), filled(&mut stream, 0.0));
        let mut recording = stream.prepare().unwrap().begin().unwrap();
        let mut t = recording.alloc_scratch::<f32>(x.len()).unwrap();
        recording.launch(&k.add1, grid(), (&x, &mut t)).unwrap();
        recording.launch(&k.add1, grid(), (&t, &mut y)).unwrap();
        drop(t);
        device.faults().fail_nth(call, 1, Severity::Call);
        let (mut stream, error) = recording.end().unwrap_err().into_parts();
        assert!(matches!(&error, Error::Driver { call: refused, .. } if *refused == call), "{error}");
        assert_usable(&mut stream, &k);
    }
}

/// A driver that refuses to be waited for has not finished anything, and has not lost anything either.
#[test]
fn a_wait_that_the_driver_refuses_may_be_tried_again() {
    let (device, _) = working(1);
    let mut stream = device.stream().unwrap();
    let x = filled(&mut stream, 5.0);
    device.faults().fail_nth(Call::Synchronize, 1, Severity::Call);
    let refused = stream.read(&x).unwrap_err();
    assert!(matches!(refused, Error::Driver { call: Call::Synchronize, .. }), "{refused}");
    assert!(all(&stream.read(&x).unwrap(), 5.0));
    stream.sync().unwrap();
}

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A task that waits for a device that is gone would wait for ever.
#[test]
fn a_future_resolves_when_nobody_can_run_its_read_any_more() {
    let (device, stepper, _) = stepped(1);
    let mut stream = device.stream().unwrap();
    let x = filled(&mut stream, 6.0);
    let mut future = stream.read_async(&x).unwrap();
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
    drop((x, stream, device, stepper));
    assert!(eventually(|| bell.0.load(Ordering::SeqCst) == 1));
    assert!(poll(&mut future).unwrap().is_err());
}
