//! Cases FAIL-02 and WIN-05, where the driver refuses a transition. What their users meet otherwise is in the conformance
//! suite, and FAIL-05 is in `poison.rs`.

mod support_objects;

use dacapo::host::Severity;
use dacapo::prelude::*;
use dacapo::{Call, Error};
use support_objects::*;

/// Reads, allocates, and makes and replays a graph: what must work after any failure.
fn assert_all_works(device: &Device, s: &mut Stream, k: &Kernels) {
    let mut c = s.alloc::<u32>(N).unwrap();
    let (mut graph, out) = s
        .capture(|w| {
            w.launch(&k.inc, grid(), (&mut c,))?;
            let mut out = w.alloc::<u32>(N)?;
            w.launch(&k.add1, grid(), (&c, &mut out))?;
            Ok(out)
        })
        .unwrap();
    graph.replay(s).unwrap();
    assert_eq!(s.read(&c).unwrap(), [2; N]);
    assert_eq!(s.read(&out).unwrap(), [3; N]);
    assert!(!device.captures().any_active());
}

/// Cleanup that only happens on success leaks the arena, or leaves the stream recording for ever.
#[test]
fn fail_02_a_refused_transition_leaves_nothing_behind() {
    for (call, nth) in
        [(Call::Begin, 1), (Call::End, 1), (Call::Seal, 1), (Call::Allocate, 1), (Call::Allocate, 2)]
    {
        for severity in [Severity::Call, Severity::Memory] {
            // A first refusal for want of memory is retried once: two in a row are what is reported.
            let times = if call == Call::Allocate && severity == Severity::Memory { 2 } else { 1 };
            refuse_a_capture(call, nth, times, severity);
        }
    }
}

/// Captures a graph with a survivor and a temporary of a page each, while the `nth` such calls of the driver fail.
fn refuse_a_capture(call: Call, nth: u64, times: u64, severity: Severity) {
    const LARGE: usize = 1 << 20;
    let device = device(1);
    let k = Kernels::load(&device);
    let mut s = device.stream().unwrap();
    let mut c = s.alloc::<u32>(N).unwrap();
    let before = baseline(&mut s);
    for further in 0..times {
        device.faults().fail_nth(call, nth + further, severity);
    }
    let mut survivor = None;
    let all = Grid::covering(LARGE);
    let error = refused(s.record(|w| {
        let mut temporary = w.alloc_scratch::<u32>(LARGE)?;
        let mut survives = w.alloc_scratch::<u32>(LARGE)?;
        w.launch(&k.inc, grid(), (&mut c,))?;
        w.launch(&k.set, all, (&mut temporary, 1u32))?;
        w.launch(&k.add1, all, (&temporary, &mut survives))?;
        survivor = Some(survives);
        Ok(())
    }));
    let memory = call == Call::Allocate && severity == Severity::Memory;
    match &error {
        Error::Driver { call: failed, .. } if !memory => assert_eq!(*failed, call),
        Error::OutOfMemory { requested, .. } if memory => assert!(*requested >= LARGE * 4, "{requested}"),
        other => panic!("{call:?}: {other}"),
    }
    device.faults().clear();
    assert!(!device.captures().any_active(), "{call:?}");
    if let Some(survivor) = survivor {
        let lost = refused(s.read(&survivor));
        assert!(matches!(lost, Error::NeverSealed { .. }), "{lost}");
        assert_eq!(lost.root().to_string(), error.to_string());
    }
    assert_eq!(s.read(&c).unwrap(), [0; N], "bytes from outside are what they were");
    assert_returns_to(&mut s, before);
    assert_all_works(&device, &mut s, &k);
    assert_returns_to(&mut s, before);
    drop(c);
    s.memory_cleanup().unwrap();
    let refusals = if call == Call::Allocate { times } else { 0 };
    let pages = || (device.faults().count(Call::Allocate) - refusals, device.faults().count(Call::Free));
    eventually(|| pages().0 == pages().1, || format!("{call:?}: pages allocated and freed: {:?}", pages()));
    assert_eq!(device.memory_usage().held, 0);
}

/// The by-value `begin` and `end` give the stream back, in no capture and usable.
#[test]
fn fail_02_a_refused_transition_gives_the_stream_back() {
    let device = device(1);
    let k = Kernels::load(&device);
    let s = device.stream().unwrap();
    device.faults().fail_nth(Call::Begin, 1, Severity::Call);
    let (s, error) = s.prepare().unwrap().begin().unwrap_err().into_parts();
    assert!(matches!(error, Error::Driver { call: Call::Begin, .. }));
    for call in [Call::End, Call::Seal] {
        let s = device.stream().unwrap().prepare().unwrap().begin().unwrap();
        device.faults().fail_nth(call, 1, Severity::Call);
        let (mut s, error) = s.end().unwrap_err().into_parts();
        assert!(matches!(error, Error::Driver { call: failed, .. } if failed == call), "{error}");
        assert_eq!(s.phase(), dacapo::PhaseName::NoCapture);
        assert_all_works(&device, &mut s, &k);
    }
    let mut s = s;
    assert_all_works(&device, &mut s, &k);
}

/// A driver that refuses the end or the sealing is the last that may spoil a graph; one that refuses launches is not
/// asked at all while a recording is a list.
#[test]
fn win_05_what_the_driver_refuses_at_the_end_leaves_no_graph_and_a_usable_stream() {
    let device = device(1);
    let k = Kernels::load(&device);
    let mut s = device.stream().unwrap();
    let mut output = s.alloc::<u32>(N).unwrap();
    s.fill(&mut output, 9).unwrap();
    for call in [Call::End, Call::Seal] {
        device.faults().fail_nth(call, 1, Severity::Call);
        let error = refused(s.record(|w| w.launch(&k.inc, grid(), (&mut output,))));
        assert!(matches!(&error, Error::Driver { call: refused, .. } if *refused == call), "{error}");
        assert!(!device.captures().any_active());
        assert_eq!(s.read(&output).unwrap(), [9; N]);
    }
    device.faults().fail_all(Call::Launch, Severity::Call);
    let (mut graph, ()) = s.record(|w| w.launch(&k.inc, grid(), (&mut output,))).unwrap();
    graph.replay(&mut s).unwrap();
    assert_eq!(s.read(&output).unwrap(), [10; N]);
}
