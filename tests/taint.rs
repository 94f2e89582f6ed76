//! Failures of the driver's calls, and of kernels, carried by the bytes that they left unwritten. The rules of taint
//! themselves are in the conformance suite.

mod support_objects;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dacapo::host::{Severity, Stepper};
use dacapo::prelude::*;
use dacapo::{Call, Error, ErrorKind, Touches};
use support_objects::*;

/// A stepped device with two slots, a stream on each, and three buffers that hold zeros.
struct Bench {
    device: Device,
    stepper: Stepper,
    k: Kernels,
    a: Stream,
    b: Stream,
    x: Buffer<u32>,
    y: Buffer<u32>,
    z: Buffer<u32>,
}

impl Bench {
    fn new() -> Self {
        let (device, stepper) = stepped(2);
        let k = Kernels::load(&device);
        let (mut a, b) = (device.stream().unwrap(), device.stream().unwrap());
        let [x, y, z] = [(); 3].map(|()| a.alloc::<u32>(N).unwrap());
        stepper.run_all();
        Bench { device, stepper, k, a, b, x, y, z }
    }

    /// `set(x, 1)` on stream A, refused by the driver at its call.
    fn fail_launch_of_x(&mut self) -> Error {
        self.device.faults().fail_nth(Call::Launch, 1, Severity::Call);
        let error = refused(self.a.launch(&self.k.set, grid(), (&mut self.x, 1u32)));
        assert!(matches!(error, Error::Driver { call: Call::Launch, .. }), "{error}");
        error
    }
}

/// The reader of a skipped launch's output must hear of the first failure, not of the skip, on any stream.
#[test]
fn taint_reaches_readers_on_other_streams_through_skipped_launches_with_the_first_cause() {
    let mut bench = Bench::new();
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = ran.clone();
    let watched = Program::<(In<u32>, Out<u32>)>::new("watched").host(move |(x, y), _| {
        counted.fetch_add(1, Ordering::Relaxed);
        y.copy_from_slice(x);
    });
    let watched = watched.load(&bench.device).unwrap();
    let error = bench.fail_launch_of_x();
    let Bench { stepper, k, mut a, mut b, mut x, mut y, mut z, .. } = bench;
    b.launch(&watched, grid(), (&x, &mut y)).unwrap();
    a.launch(&watched, grid(), (&y, &mut z)).unwrap();
    a.copy(&z, &mut y).unwrap();
    stepper.run_all();
    assert_eq!(ran.load(Ordering::Relaxed), 0, "a launch that reads tainted bytes does not run");
    for buffer in [&x, &y, &z] {
        assert_tainted(&mut a, buffer, &error);
        assert_tainted(&mut b, buffer, &error);
    }
    // The calls have reported what is new, and what was skipped is nothing new.
    a.sync().unwrap();
    b.sync().unwrap();
    b.fill(&mut x, 4).unwrap();
    a.launch(&watched, grid(), (&x, &mut y)).unwrap();
    assert_eq!(b.read(&y).unwrap(), [4; N]);
    assert_tainted(&mut b, &z, &error);
    a.launch(&k.set, grid(), (&mut z, 7u32)).unwrap();
    assert_eq!(b.read(&z).unwrap(), [7; N]);
}

/// A failed read leaves its bytes as they were.
#[test]
fn a_failed_read_taints_nothing() {
    let Bench { device, mut a, x, .. } = Bench::new();
    device.faults().fail_nth(Call::Read, 1, Severity::Call);
    assert!(matches!(refused(a.read(&x)), Error::Driver { call: Call::Read, .. }));
    device.faults().fail_nth(Call::Execute, 1, Severity::Call);
    assert!(matches!(refused(a.read(&x)), Error::Driver { call: Call::Execute, .. }));
    assert_eq!(a.read(&x).unwrap(), [0; N]);
}

/// An operation whose wait could not be enqueued would run out of order: it does not run at all.
#[test]
fn an_operation_whose_wait_is_refused_taints_its_outputs_instead_of_running_early() {
    let Bench { device, stepper, k, mut a, mut b, mut x, mut y, .. } = Bench::new();
    a.fill(&mut x, 1).unwrap();
    device.faults().fail_nth(Call::Wait, 1, Severity::Call);
    let error = refused(b.launch(&k.add1, grid(), (&x, &mut y)));
    assert!(matches!(error, Error::Driver { call: Call::Wait, .. }), "{error}");
    stepper.run_all();
    assert_tainted(&mut b, &y, &error);
    b.launch(&k.add1, grid(), (&x, &mut y)).unwrap();
    assert_eq!(b.read(&y).unwrap(), [2; N]);
}

/// A counter that missed a step is wrong for ever: no later replay may make it look right.
#[test]
fn an_in_out_member_that_missed_a_step_stays_tainted_until_the_users_own_write() {
    let Bench { device, k, mut a, mut b, mut x, mut y, mut z, .. } = Bench::new();
    let (mut graph, ()) = a
        .record(|w| {
            w.launch(&k.inc, grid(), (&mut x,))?;
            w.launch(&k.set, grid(), (&mut y, 5u32))?;
            w.launch(&k.sum, grid(), (&x, &y, &mut z))
        })
        .unwrap();
    graph.replay(&mut a).unwrap();
    assert_eq!(a.read(&z).unwrap(), [6; N]);
    device.faults().fail_nth(Call::Replay, 1, Severity::Call);
    let error = refused(graph.replay(&mut a));
    assert!(matches!(error, Error::Driver { call: Call::Replay, .. }), "{error}");
    for buffer in [&x, &y, &z] {
        assert_tainted(&mut b, buffer, &error);
    }
    for _ in 0..2 {
        let reported = refused(graph.replay(&mut b).unwrap().wait());
        assert_eq!(reported.root().to_string(), error.to_string());
        assert_eq!(b.read(&y).unwrap(), [5; N], "a replay clears what it fully writes before it reads");
        assert_tainted(&mut b, &x, &error);
        assert_tainted(&mut b, &z, &error);
    }
    b.write(&mut x, &[10; N]).unwrap();
    graph.replay(&mut a).unwrap().wait().unwrap();
    assert_eq!(a.read(&x).unwrap(), [11; N]);
    assert_eq!(a.read(&z).unwrap(), [16; N]);
}

/// A replay that could not be ordered must not run, and what it was to write is as lost as if it had been refused.
#[test]
fn a_replay_whose_wait_is_refused_taints_its_write_set_and_nothing_else() {
    let Bench { device, stepper, k, mut a, mut b, mut x, mut y, z, .. } = Bench::new();
    let (mut graph, ()) = a.record(|w| w.launch(&k.add1, grid(), (&x, &mut y))).unwrap();
    b.fill(&mut x, 1).unwrap();
    device.faults().fail_nth(Call::Wait, 1, Severity::Call);
    let error = refused(graph.replay(&mut a));
    assert!(matches!(error, Error::Driver { call: Call::Wait, .. }));
    stepper.run_all();
    assert_tainted(&mut a, &y, &error);
    assert_eq!(b.read(&x).unwrap(), [1; N]);
    assert_eq!(b.read(&z).unwrap(), [0; N]);
    graph.replay(&mut a).unwrap();
    assert_eq!(b.read(&y).unwrap(), [2; N]);
}

/// A node that fails while a replay runs taints what depends on it, in this replay only.
#[test]
fn a_node_that_fails_late_is_reported_by_its_ticket_and_its_stream_once_and_the_next_replay_is_clean() {
    let Bench { device, stepper, k, mut a, mut b, x, mut y, mut z, .. } = Bench::new();
    let (mut graph, ()) = a
        .record(|w| {
            w.launch(&k.add1, grid(), (&x, &mut y))?;
            w.launch(&k.add1, grid(), (&y, &mut z))
        })
        .unwrap();
    device.faults().fail_nth(Call::Execute, 1, Severity::Call);
    let ticket = graph.replay(&mut b).unwrap();
    stepper.run_all();
    let error = refused(ticket.wait());
    assert!(matches!(error, Error::Driver { call: Call::Execute, .. }));
    assert_tainted(&mut a, &y, &error);
    assert_tainted(&mut a, &z, &error);
    a.sync().unwrap();
    assert_eq!(refused(b.sync()).to_string(), error.to_string());
    b.sync().unwrap();
    assert!(ticket.wait().is_err(), "a ticket keeps its answer");
    graph.replay(&mut a).unwrap().wait().unwrap();
    assert_eq!(b.read(&z).unwrap(), [2; N]);
}

/// A panic in a kernel or callback is a failure like any other: caught, carried by the bytes, and the device goes on.
#[test]
fn a_panic_in_a_kernel_or_callback_taints_what_it_was_to_write() {
    let Bench { device, k, mut a, mut x, mut y, mut z, .. } = Bench::new();
    let panics = Program::<(Out<u32>,)>::new("panics").host(|(x,), _| {
        assert!(x.is_empty(), "a panic in a kernel");
    });
    let panics = panics.load(&device).unwrap();
    a.launch(&panics, grid(), (&mut x,)).unwrap();
    let error = refused(a.sync());
    assert!(
        matches!(&error, Error::KernelPanicked { message, .. } if message.contains("in a kernel")),
        "{error}"
    );
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert_tainted(&mut a, &x, &error);

    let called = Arc::new(AtomicUsize::new(0));
    let counted = called.clone();
    a.host_call_with(Touches::new().reads(&x).writes(&mut y), move || {
        counted.fetch_add(1, Ordering::Relaxed);
    })
    .unwrap();
    assert_tainted(&mut a, &y, &error);
    assert_eq!(called.load(Ordering::Relaxed), 0, "what it reads was never written");

    a.host_call_with(Touches::new().writes(&mut z), || panic!("a panic in a callback")).unwrap();
    let error = refused(a.sync());
    assert!(
        matches!(&error, Error::CallbackPanicked { message } if message.contains("in a callback")),
        "{error}"
    );
    assert_tainted(&mut a, &z, &error);
    a.launch(&k.set, grid(), (&mut z, 2u32)).unwrap();
    assert_eq!(a.read(&z).unwrap(), [2; N]);
    a.sync().unwrap();
}
