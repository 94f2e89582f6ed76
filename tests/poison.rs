//! Case FAIL-05: the device is gone. In a binary of its own, as for any backend whose sticky faults reach the process.

mod support_objects;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use dacapo::host::{Severity, Stepper};
use dacapo::prelude::*;
use dacapo::{AllocationMode, Call, Error, ErrorKind, Layout, ReadFuture, Result, Ticket};
use support_objects::*;

/// A device with everything on it that can be dropped or called: objects, work in flight, an open window.
struct World {
    device: Device,
    stepper: Stepper,
    k: Kernels,
    a: Stream,
    b: Stream,
    x: Buffer<u32>,
    y: Buffer<u32>,
    graph: Graph,
    ticket: Ticket,
    future: Pin<Box<ReadFuture<u32>>>,
    recording: Stream<dacapo::Recording>,
    born: Buffer<u32>,
}

impl World {
    fn new() -> Self {
        let (device, stepper) = stepped(2);
        let k = Kernels::load(&device);
        let (mut a, b) = (device.stream().unwrap(), device.stream().unwrap());
        let (mut x, mut y) = (a.alloc::<u32>(N).unwrap(), a.alloc::<u32>(N).unwrap());
        let (mut graph, ()) = a
            .record(|w| {
                let mut t = w.alloc::<u32>(N)?;
                w.launch(&k.add1, grid(), (&x, &mut t))?;
                w.launch(&k.mul2, grid(), (&t, &mut y))
            })
            .unwrap();
        stepper.run_all();
        let mut recording = device.stream().unwrap().prepare().unwrap().begin().unwrap();
        let mut born = recording.alloc::<u32>(N).unwrap();
        recording.launch(&k.add1, grid(), (&x, &mut born)).unwrap();
        a.fill(&mut x, 1).unwrap();
        let ticket = graph.replay(&mut a).unwrap();
        let future = Box::pin(a.read_async(&y).unwrap());
        World { device, stepper, k, a, b, x, y, graph, ticket, future, recording, born }
    }

    /// Meets a sticky fault in a call of this kind. Returns what the call itself said, if it says anything.
    fn lose(&mut self, call: Call) -> Option<Error> {
        self.device.faults().fail_nth(call, 1, Severity::Sticky);
        let World { device, stepper, k, a, b, x, y, graph, .. } = self;
        let outcome: Result<()> = match call {
            Call::Allocate => a.alloc_scratch::<u32>(1 << 20).map(drop),
            Call::Load => Program::<(Out<u32>,)>::new("late").host(|_, _| ()).load(device).map(drop),
            Call::Launch => a.launch(&k.inc, grid(), (&mut *x,)),
            Call::Copy => a.copy(&*x, &mut *y),
            Call::Fill => a.fill(&mut *x, 2),
            Call::Write => a.write(&mut *x, &[2; N]),
            Call::Read => a.read(&*x).map(drop),
            // What is pinned is in use: the read in flight lands in it.
            Call::Pin => a.write(&mut *x, &[2; N]),
            Call::HostCall => a.host_call(|| ()),
            Call::Stamp => a.profile(|_| Ok(())).map(drop),
            // The fill on the other slot has not run.
            Call::Wait => b.launch(&k.inc, grid(), (&mut *x,)),
            Call::Begin => a.record(|_| Ok(())).map(drop),
            Call::End | Call::Seal => a.record(|w| w.launch(&k.inc, grid(), (&mut *x,))).map(drop),
            Call::Replay => graph.replay(b).map(drop),
            Call::Synchronize => a.sync(),
            Call::Free => {
                let dedicated = |w: &mut dacapo::Work<'_>| w.alloc_scratch::<u32>(N);
                drop(a.allocating(AllocationMode::Dedicated, dedicated).unwrap());
                eventually(|| device.check().is_err(), || "the page was never freed".to_owned());
                return None;
            }
            Call::Execute => {
                stepper.run_all();
                return None;
            }
            other => panic!("no way to meet a fault in {other:?}"),
        };
        Some(refused(outcome))
    }
}

/// The kinds of call that can be met on a device that is open; the host has no raw sections.
fn calls() -> impl Iterator<Item = Call> {
    Call::ALL.into_iter().filter(|call| !matches!(call, Call::Open | Call::Section))
}

#[track_caller]
fn assert_lost(error: &Error, call: Call, what: &str) {
    match error {
        Error::DeviceLost { first } => assert_eq!(first.call(), call, "{what}: {error}"),
        other => panic!("{what}, after a fault in {call:?}: {other}"),
    }
    assert_eq!(error.kind(), ErrorKind::Lost);
}

/// A fault that only its own call reports leaves a server that answers errors, or wrong data, for hours.
#[test]
fn fail_05_after_a_sticky_fault_of_any_call_every_later_call_reports_the_first_cause_at_once() {
    for call in calls() {
        let mut world = World::new();
        let _hold = world.stepper.hold();
        if let Some(error) = world.lose(call) {
            assert_lost(&error, call, "the call itself");
        }
        // A second sticky fault is waiting for whoever still calls the driver, and would show as the cause.
        Call::ALL.into_iter().for_each(|any| world.device.faults().fail_all(any, Severity::Sticky));
        let driver_calls = world.device.faults().total();
        let World { device, k, mut a, mut x, mut y, mut graph, ticket, recording, .. } = world;
        let late = Program::<(Out<u32>,)>::new("later").host(|_, _| ());
        let pitched = Layout::pitched(&[2, 2], 8).unwrap();
        let outcomes: [(&str, Result<()>); 30] = [
            ("check", device.check()),
            ("stream", device.stream().map(drop)),
            ("load", late.load(&device).map(drop)),
            ("alloc", a.alloc::<u32>(N).map(drop)),
            ("alloc_scratch", a.alloc_scratch::<u32>(1 << 20).map(drop)),
            ("alloc of nothing", a.alloc::<u32>(0).map(drop)),
            ("launch", a.launch(&k.inc, grid(), (&mut x,))),
            ("copy", a.copy(&x, &mut y)),
            ("fill", a.fill(&mut x, 1)),
            ("write", a.write(&mut x, &[1; N])),
            ("write of owned data", a.write(&mut x, vec![1; N])),
            ("write_pitched", a.write_pitched(&mut x, &pitched, &[1; 4])),
            ("read_pitched", a.read_pitched(&x, &pitched).map(drop)),
            ("read_pitched_into", a.read_pitched_into(&x, &pitched, &mut [0; 4])),
            ("read_into_timeout", a.read_into_timeout(&x, &mut [0; N], PATIENCE)),
            ("read", a.read(&x).map(drop)),
            ("read_into", a.read_into(&x, &mut [0; N])),
            ("read_timeout", a.read_timeout(&x, PATIENCE).map(drop)),
            ("read_async", a.read_async(&x).map(drop)),
            ("host_call", a.host_call(|| panic!("never called"))),
            ("profile", a.profile(|_| Ok(())).map(drop)),
            ("sync", a.sync()),
            ("sync_timeout", a.sync_timeout(PATIENCE)),
            ("embed", a.embed(&mut graph)),
            ("replay", graph.replay(&mut a).map(drop)),
            ("record", a.record(|_| Ok(())).map(drop)),
            ("capture", a.capture(|_| Ok(())).map(drop)),
            ("memory_cleanup", a.memory_cleanup()),
            ("wait", ticket.wait()),
            ("end", recording.end().map(drop).map_err(Error::from)),
        ];
        for (what, outcome) in outcomes {
            assert_lost(&refused(outcome), call, what);
        }
        let (a, error) = a.prepare().unwrap_err().into_parts();
        assert_lost(&error, call, "prepare");
        // Only `end` still tells the driver: that the window is over, whatever became of the device.
        assert_eq!(device.faults().total(), driver_calls + 1, "after {call:?}");
        drop(a);
    }
}

/// What the device met while it ran is as final as what a call met, for what was enqueued before, too.
#[test]
fn fail_05_a_fault_that_surfaces_late_reaches_whoever_waits() {
    let mut world = World::new();
    let mut context = Context::from_waker(Waker::noop());
    assert!(world.future.as_mut().poll(&mut context).is_pending());
    world.lose(Call::Execute);
    match world.future.as_mut().poll(&mut context) {
        Poll::Ready(outcome) => assert_lost(&refused(outcome), Call::Execute, "a read that was pending"),
        Poll::Pending => panic!("a read that never resolves"),
    }
    assert!(world.ticket.is_done());
    assert_lost(&refused(world.ticket.wait()), Call::Execute, "the ticket");
    assert_lost(&refused(world.b.read(&world.x)), Call::Execute, "another stream");
}

/// A wait on a lost device has nothing to wait for, whether or not its work will ever run.
#[test]
fn fail_05_a_wait_for_work_that_will_never_run_ends() {
    let mut world = World::new();
    let _hold = world.stepper.hold();
    world.lose(Call::Launch);
    assert!(!world.ticket.is_done());
    assert_lost(&refused(world.ticket.wait()), Call::Launch, "wait");
    assert_lost(&refused(world.ticket.wait_timeout(PATIENCE)), Call::Launch, "wait_timeout");
}

/// An unwrap in a destructor turns a lost device into an abort of the process, and a driver call may hang.
#[test]
fn fail_05_drops_on_a_lost_device_are_quiet_and_call_no_driver() {
    for call in calls() {
        let mut world = World::new();
        let hold = world.stepper.hold();
        world.lose(call);
        Call::ALL.into_iter().for_each(|any| world.device.faults().fail_all(any, Severity::Sticky));
        let (faults, calls) = (world.device.faults(), world.device.faults().total());
        drop(world);
        assert_eq!(faults.total(), calls, "after {call:?}: leaked, and not given back a second time");
        drop(hold);
    }
}

/// The same while a panic unwinds, where a second panic would abort.
#[test]
fn fail_05_drops_on_a_lost_device_are_quiet_while_a_panic_unwinds() {
    for call in calls() {
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let mut world = World::new();
            let _hold = world.stepper.hold();
            world.lose(call);
            Call::ALL.into_iter().for_each(|any| world.device.faults().fail_all(any, Severity::Sticky));
            std::panic::panic_any(call);
        }));
        assert_eq!(unwound.unwrap_err().downcast_ref(), Some(&call));
    }
}

/// Workers finish what is queued on a lost device without running it, so that nothing hangs and nothing is computed.
#[test]
fn fail_05_workers_skip_what_is_queued_on_a_lost_device() {
    let device = device(2);
    let k = Kernels::load(&device);
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let (entered, running) = std::sync::mpsc::channel::<()>();
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = a.alloc::<u32>(N).unwrap();
    let ran = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = ran.clone();
    let gated = move || {
        entered.send(()).unwrap();
        gate.recv().unwrap();
    };
    a.host_call(gated).unwrap();
    a.host_call(move || seen.store(true, std::sync::atomic::Ordering::Relaxed)).unwrap();
    let future = a.read_async(&x).unwrap();
    running.recv().unwrap();
    device.faults().fail_nth(Call::Fill, 1, Severity::Sticky);
    assert_lost(&refused(b.alloc::<u32>(N)), Call::Fill, "the call itself");
    assert_lost(&refused(a.launch(&k.inc, grid(), (&mut x,))), Call::Fill, "a launch behind the gate");
    open.send(()).unwrap();
    let mut future = std::pin::pin!(future);
    let mut outcome = None;
    eventually(
        || match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ready) => {
                outcome = Some(ready);
                true
            }
            Poll::Pending => false,
        },
        || "the pending read never resolved".to_owned(),
    );
    assert_lost(&refused(outcome.unwrap()), Call::Fill, "the pending read");
    assert!(!ran.load(std::sync::atomic::Ordering::Relaxed));
}

/// Nothing of a lost device may reach the next one: that is the only way back.
#[test]
fn fail_05_a_new_device_in_the_same_process_works() {
    for call in calls() {
        let mut lost = World::new();
        lost.lose(call);
        let mut rebuilt = World::new();
        rebuilt.stepper.run_all();
        assert_eq!(rebuilt.a.read(&rebuilt.y).unwrap(), [4; N]);
        rebuilt.a.fill(&mut rebuilt.x, 5).unwrap();
        rebuilt.graph.replay(&mut rebuilt.b).unwrap().wait().unwrap();
        assert_eq!(rebuilt.b.read(&rebuilt.y).unwrap(), [12; N]);
        let (mut graph, mut c) = rebuilt.recording.end().unwrap();
        graph.replay(&mut c).unwrap();
        assert_eq!(c.read(&rebuilt.born).unwrap(), [6; N]);
        assert!(matches!(refused(c.read(&lost.x)), Error::WrongDevice { .. }));
        drop(lost);
        rebuilt.device.check().unwrap();
        rebuilt.a.sync().unwrap();
    }
}
