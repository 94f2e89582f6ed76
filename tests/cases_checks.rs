//! Case E31: a check that cannot be made rejects; it never passes by default. Whatever fails is told by an error or by
//! the loss of the device, and what was not measured, given back or remembered is not made up.

mod support_objects;

use dacapo::host::{HostOptions, Severity};
use dacapo::prelude::*;
use dacapo::{Call, DeviceOptions, Error, ErrorKind};
use support_objects::*;

/// A device with one slot on which nothing runs by itself, its kernels, and a counter.
fn subject() -> (Device, dacapo::host::Stepper, Kernels, Stream, Buffer<u32>) {
    let (device, stepper) = stepped(1);
    let k = Kernels::load(&device);
    let mut s = device.stream().unwrap();
    let c = s.alloc::<u32>(N).unwrap();
    s.sync().unwrap();
    (device, stepper, k, s, c)
}

fn is_refusal_of(error: &Error, call: Call) -> bool {
    matches!(error.root(), Error::Driver { call: refused, .. } if *refused == call)
}

/// A page that the driver did not take, and that is off the books all the same, is a leak that no report shows.
#[test]
fn e31_a_page_that_the_driver_does_not_take_stays_held_until_it_does() {
    for severity in [Severity::Call, Severity::Memory] {
        let (device, _stepper, _k, mut s, c) = subject();
        let held = device.memory_usage().held;
        device.faults().fail_all(Call::Free, severity);
        drop(c);
        let error = refused(s.memory_cleanup());
        assert!(is_refusal_of(&error, Call::Free), "{error}");
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert_eq!((device.memory_usage().held, device.memory_usage().in_use), (held, 0));
        device.check().unwrap();
        device.faults().clear();
        let mut fresh = s.alloc::<u32>(N).unwrap();
        s.launch(&Kernels::load(&device).set, grid(), (&mut fresh, 5)).unwrap();
        assert_eq!(s.read(&fresh).unwrap(), [5; N]);
        drop(fresh);
        eventually(
            || {
                s.memory_cleanup().unwrap();
                device.memory_usage().held == 0
            },
            || format!("{:?}", device.memory_usage()),
        );
    }
}

/// Memory that the driver keeps is no room: a limit that did not count it would be no limit.
#[test]
fn e31_what_the_driver_keeps_counts_against_the_limit() {
    const BYTES: usize = 4 << 20;
    let device = Device::open(DeviceOptions::new().max_streams(1).memory_limit(BYTES)).unwrap();
    let mut s = device.stream().unwrap();
    let first = s.alloc_scratch::<u8>(BYTES).unwrap();
    s.sync().unwrap();
    device.faults().fail_all(Call::Free, Severity::Call);
    drop(first);
    let error = refused(s.alloc_scratch::<u8>(BYTES / 2));
    let Error::OutOfMemory { requested, held, limit, .. } = error else { panic!("{error}") };
    assert_eq!((requested, held, limit), (BYTES / 2, BYTES, Some(BYTES)));
    device.faults().clear();
    s.alloc_scratch::<u8>(BYTES / 2).unwrap();
}

/// A time that was not taken is no time: zero would be the best that any tuner ever saw.
#[test]
fn e31_a_profile_whose_stamps_failed_is_an_error_and_no_figure() {
    for stamp in [1, 3] {
        let (device, _stepper, k, mut s, mut c) = subject();
        device.faults().fail_nth(Call::Execute, stamp, Severity::Call);
        let error = refused(s.profile(|w| w.launch(&k.inc, grid(), (&mut c,))));
        assert!(is_refusal_of(&error, Call::Execute), "{error}");
        assert!(is_refusal_of(&refused(s.sync()), Call::Execute), "and the stream's own account of it");
        s.profile(|w| w.launch(&k.inc, grid(), (&mut c,))).unwrap();
        assert_eq!(s.read(&c).unwrap(), [2; N], "what was to be timed ran each time");
    }
    for stamp in [1, 2] {
        let (device, _stepper, k, mut s, mut c) = subject();
        device.faults().fail_nth(Call::Stamp, stamp, Severity::Call);
        let error = refused(s.profile(|w| w.launch(&k.inc, grid(), (&mut c,))));
        assert!(is_refusal_of(&error, Call::Stamp), "{error}");
    }
}

/// A graph that remembers so many failures must not call a replay good of which it knows nothing any more.
#[test]
fn e31_a_ticket_whose_outcome_nobody_remembers_is_no_success() {
    let (device, stepper, k, mut s, mut c) = subject();
    let (mut graph, ()) = s.record(|w| w.launch(&k.inc, grid(), (&mut c,))).unwrap();
    device.faults().fail_nth(Call::Execute, 1, Severity::Call);
    let tickets: Vec<_> = (0..40).map(|_| graph.replay(&mut s).unwrap()).collect();
    stepper.run_all();
    // The first replay failed, and those after it were skipped, since nothing wrote the counter anew.
    for (replay, ticket) in tickets.iter().enumerate() {
        assert!(ticket.is_done());
        let error = refused(ticket.wait());
        let remembered = is_refusal_of(&error, Call::Execute);
        assert_eq!(remembered, replay >= 24, "replay {replay}: {error}");
        assert!(remembered || matches!(error, Error::OutcomeForgotten { kept: 16, .. }), "{error}");
    }
    refused(s.sync());
    s.fill(&mut c, 1).unwrap();
    graph.replay(&mut s).unwrap().wait().unwrap();
    assert_eq!(s.read(&c).unwrap(), [2; N]);
}

/// A wait that the driver refuses says nothing about the work: the caller hears so, and the next wait is a real one.
#[test]
fn e31_a_wait_that_the_driver_refuses_is_not_taken_for_done() {
    let (device, stepper, k, mut s, mut c) = subject();
    let (mut graph, ()) = s.record(|w| w.launch(&k.inc, grid(), (&mut c,))).unwrap();
    let ticket = graph.replay(&mut s).unwrap();
    let faults = device.faults();
    let hold = stepper.hold();
    faults.fail_nth(Call::Synchronize, 1, Severity::Call);
    assert!(is_refusal_of(&refused(ticket.wait()), Call::Synchronize));
    faults.fail_nth(Call::Synchronize, 1, Severity::Call);
    assert!(is_refusal_of(&refused(s.sync()), Call::Synchronize));
    faults.fail_nth(Call::Synchronize, 1, Severity::Call);
    assert!(is_refusal_of(&refused(s.read(&c)), Call::Synchronize));
    assert!(!ticket.is_done());
    drop(hold);
    ticket.wait().unwrap();
    assert_eq!(s.read(&c).unwrap(), [1; N]);
}

/// Where one slot cannot be made to wait for another, running without the wait would be a race that nobody sees.
#[test]
fn e31_a_use_that_cannot_wait_for_another_slot_does_not_run() {
    let (device, stepper) = stepped(2);
    let k = Kernels::load(&device);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let (mut x, mut y) = (a.alloc::<u32>(N).unwrap(), b.alloc::<u32>(N).unwrap());
    stepper.run_all();
    a.fill(&mut x, 4).unwrap();
    device.faults().fail_nth(Call::Wait, 1, Severity::Call);
    let error = refused(b.launch(&k.add1, grid(), (&x, &mut y)));
    assert!(is_refusal_of(&error, Call::Wait), "{error}");
    assert_tainted(&mut b, &y, &error);
    b.launch(&k.add1, grid(), (&x, &mut y)).unwrap();
    assert_eq!(b.read(&y).unwrap(), [5; N]);
}

/// A graph that the driver did not begin, end or seal is none, whatever was recorded; what was born in it says why.
#[test]
fn e31_a_recording_that_the_driver_refuses_is_no_graph() {
    for severity in [Severity::Call, Severity::Memory] {
        for call in [Call::Begin, Call::End, Call::Seal, Call::Allocate] {
            let (device, _stepper, k, mut s, mut c) = subject();
            let before = baseline(&mut s);
            device.faults().fail_all(call, severity);
            let mut born = None;
            let error = refused(s.record(|w| {
                born = Some(w.alloc::<u32>(1 << 18)?);
                let mut tmp = w.alloc::<u32>(N)?;
                w.launch(&k.set, grid(), (&mut tmp, 1))?;
                w.launch(&k.inc, grid(), (&mut c,))
            }));
            let expected = match (call, severity) {
                (Call::Allocate, Severity::Memory) => matches!(error, Error::OutOfMemory { .. }),
                _ => is_refusal_of(&error, call),
            };
            assert!(expected, "{call}: {error}");
            device.faults().clear();
            assert!(!device.captures().any_active(), "{call}");
            assert_eq!(born.is_some(), call != Call::Begin);
            if let Some(born) = &born {
                let why = refused(s.read(born));
                assert!(matches!(why, Error::NeverSealed { .. }), "{why}");
                assert_eq!(why.root().to_string(), error.to_string());
            }
            drop(born);
            assert_eq!(s.read(&c).unwrap(), [0; N], "nothing ran");
            assert_returns_to(&mut s, before);
        }
    }
}

/// A device that could not be opened whole is no device with fewer slots.
#[test]
fn e31_a_device_opens_with_all_its_slots_or_not_at_all() {
    for slot in 1..=3 {
        for severity in [Severity::Call, Severity::Memory, Severity::Sticky] {
            let faults = dacapo::host::Faults::default();
            faults.fail_nth(Call::Open, slot, severity);
            let options =
                DeviceOptions::<Host>::new().max_streams(3).backend(HostOptions::new().faults(faults));
            let error = refused(Device::open(options.clone()));
            let lost = severity == Severity::Sticky;
            let told = match &error {
                Error::DeviceLost { first } => lost && first.call() == Call::Open,
                error => !lost && is_refusal_of(error, Call::Open),
            };
            assert!(told, "{error}");
            let device = Device::open(options).expect("the fault was met, and is over");
            assert_eq!(device.max_streams(), 3);
        }
    }
}

/// A compaction that the driver broke off is not one that found nothing to do; and a capture that would only have liked
/// one goes on without it.
#[test]
fn e31_a_compaction_that_the_driver_refuses_says_so() {
    /// Elements of 400 KiB, of which a page has room for five.
    const PART: usize = 100 << 10;
    let (device, stepper, k, mut s, mut c) = subject();
    let mut parts: Vec<Buffer<u32>> = (0..9).map(|_| s.alloc(PART).unwrap()).collect();
    parts.drain(1..8);
    stepper.run_all();
    for (call, severity) in [(Call::Copy, Severity::Call), (Call::Copy, Severity::Memory)] {
        device.faults().fail_all(call, severity);
        let error = refused(s.compact());
        assert!(is_refusal_of(&error, call), "{error}");
        let (mut graph, ()) = s.record(|w| w.launch(&k.inc, grid(), (&mut c,))).unwrap();
        graph.replay(&mut s).unwrap();
        device.faults().clear();
    }
    assert_eq!(s.read(&c).unwrap(), [2; N]);
    let done = s.compact().unwrap();
    assert!(done.buffers > 0 && done.pages > 0, "{done:?}");
    assert!(parts.iter().all(|part| s.read(part).unwrap() == [0; PART]));
}
