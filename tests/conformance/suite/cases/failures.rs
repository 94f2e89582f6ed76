//! Cases FAIL-01 to FAIL-04: panics, failed ends, and whose failure it is. FAIL-05 is in `poison.rs`.


use std::panic::{AssertUnwindSafe, catch_unwind};

use dacapo::host::Severity;
use dacapo::{Call, Error, ErrorKind, GridLimit};

use super::support::*;

/// Reads, allocates, and makes and replays a graph: what must work after any failure.
fn assert_all_works(device: &Device, s: &mut Stream, k: &Kernels) {
    let mut c = s.alloc::<u32>(N).unwrap();
    let (mut graph, out) = s
        .capture(|w| {
            w.launch(&k.inc, grid(), (&mut c, Len))?;
            let mut out = w.alloc::<u32>(N)?;
            w.launch(&k.add1, grid(), (&c, &mut out, Len, Len))?;
            Ok(out)
        })
        .unwrap();
    graph.replay(s).unwrap();
    assert_eq!(s.read(&c).unwrap(), [2; N]);
    assert_eq!(s.read(&out).unwrap(), [3; N]);
    assert!(!device.captures().any_active());
}

/// A panic that leaves the window open disables the stream, or the device, for the rest of the process.
#[test]
fn fail_01_a_panic_between_begin_and_end_closes_the_window() {
    let Some(device) = device(2) else { return };
    let k = Kernels::load(&device);
    let mut s = device.stream().unwrap();
    let mut c = s.alloc::<u32>(N).unwrap();
    let before = baseline(&mut s);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        s.record(|w| {
            let mut born = w.alloc::<u32>(1 << 20)?;
            w.launch(&k.inc, grid(), (&mut c, Len))?;
            w.launch(&k.fill, Grid::covering(1 << 20), (&mut born, 1u32, Len))?;
            assert!(!device.captures().any_active(), "a panic after two recorded launches");
            Ok(())
        })
    }));
    assert!(caught.is_err());
    assert!(!device.captures().any_active());
    assert_eq!(s.read(&c).unwrap(), [0; N], "nothing of the recording ran");
    assert_all_works(&device, &mut s, &k);
    assert_returns_to(&mut s, before);
}

/// The same for the by-value transitions, where unwinding drops the recording stream itself.
#[test]
fn fail_01_a_panic_that_drops_the_recording_stream_closes_the_window() {
    let Some(device) = device(2) else { return };
    let k = Kernels::load(&device);
    let mut other = device.stream().unwrap();
    let mut c = other.alloc::<u32>(N).unwrap();
    let before = baseline(&mut other);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let mut s = device.stream().unwrap().prepare().unwrap().begin().unwrap();
        s.launch(&k.inc, grid(), (&mut c, Len)).unwrap();
        s.launch(&k.inc, grid(), (&mut c, Len)).unwrap();
        assert!(!device.captures().is_capturing(s.id()), "a panic after two recorded launches");
    }));
    assert!(caught.is_err());
    assert!(!device.captures().any_active());
    assert_eq!(other.read(&c).unwrap(), [0; N]);
    assert_all_works(&device, &mut other, &k);
    assert_returns_to(&mut other, before);
}

/// An early return drops the stream without a panic: same rule, and what was born in the recording says why it is lost.
#[test]
fn fail_01_a_dropped_recording_stream_discards_its_recording() {
    let Some(device) = device(2) else { return };
    let k = Kernels::load(&device);
    let mut other = device.stream().unwrap();
    let before = baseline(&mut other);
    let mut s = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let mut born = s.alloc::<u32>(N).unwrap();
    s.launch(&k.fill, grid(), (&mut born, 1u32, Len)).unwrap();
    drop(s);
    assert!(!device.captures().any_active());
    let error = refused(other.read(&born));
    assert!(matches!(error.root(), Error::Abandoned { how: dacapo::Abandonment::Dropped, .. }), "{error}");
    drop(born);
    assert_all_works(&device, &mut other, &k);
    assert_returns_to(&mut other, before);
}

/// A leaked window that blocks others, or that nobody can close, is the same as a hang.
#[test]
fn fail_01_a_forgotten_recording_harms_nobody_and_can_be_evicted() {
    let Some(device) = device(1) else { return };
    let k = Kernels::load(&device);
    let mut other = device.stream().unwrap();
    let mut pinned = other.alloc::<u32>(N).unwrap();
    let kept = other.alloc::<u32>(N).unwrap();
    let mut s = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let mut born = s.alloc::<u32>(N).unwrap();
    s.launch(&k.fill, grid(), (&mut born, 1u32, Len)).unwrap();
    s.launch(&k.inc, grid(), (&mut pinned, Len)).unwrap();
    let window = s.window().unwrap();
    std::mem::forget(s);
    assert!(device.captures().any_recording());
    assert!(matches!(refused(other.read(&born)), Error::StillRecording { window: w, .. } if w == window));
    other.launch(&k.inc, grid(), (&mut pinned, Len)).unwrap();
    assert_eq!(other.read(&pinned).unwrap(), [1; N]);
    let (mut graph, ()) = other.record(|w| w.launch(&k.inc, grid(), (&mut pinned, Len))).unwrap();
    graph.replay(&mut other).unwrap();
    assert_eq!(other.read(&pinned).unwrap(), [2; N]);
    let in_use = device.memory_usage().in_use;
    drop((graph, pinned));
    other.sync().unwrap();
    assert_eq!(device.memory_usage().in_use, in_use, "the open window pins what it touched");
    device.evict(window).unwrap();
    assert!(!device.captures().any_active());
    assert!(device.memory_usage().in_use < in_use, "the eviction lets go of it");
    assert!(matches!(refused(other.read(&born)).root(), Error::Evicted { .. }));
    assert_eq!(other.read(&kept).unwrap(), [0; N]);
    assert_all_works(&device, &mut other, &k);
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
    let Some(device) = device(1) else { return };
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
        w.launch(&k.inc, grid(), (&mut c, Len))?;
        w.launch(&k.fill, all, (&mut temporary, 1u32, Len))?;
        w.launch(&k.add1, all, (&temporary, &mut survives, Len, Len))?;
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
    let Some(device) = device(1) else { return };
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

/// A cascade that reports its last error sends people to the wrong place; a graph that misses a launch must not exist.
#[test]
fn fail_03_end_returns_the_first_failure_and_seals_nothing() {
    let Some(device) = device(1) else { return };
    let k = Kernels::load(&device);
    let bad = illegal_block(&device);
    let (mut a, mut b) = {
        let mut s = device.stream().unwrap();
        (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(N).unwrap())
    };
    let foreign = support_objects::device(1).stream().unwrap().alloc::<u32>(N).unwrap();
    let seals = device.faults().count(Call::Seal);
    let mut s = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    s.launch(&k.inc, grid(), (&mut a, Len)).unwrap();
    s.launch(&k.add1, grid(), (&a, &mut b, Len, Len)).unwrap();
    let first = refused(s.launch(&bad, grid(), (&mut b,) /*FIXME lens*/));
    assert!(matches!(first, Error::Limit { limit: GridLimit::ThreadsPerBlock, .. }), "{first}");
    // Nobody looks at what comes after: wrong devices, wrong lengths, and what would have been right.
    let later = refused(s.launch(&k.add1, grid(), (&foreign, &mut b, Len, Len)));
    assert!(matches!(&later, Error::Doomed { .. }), "{later}");
    assert!(matches!(refused(s.write(&mut b, &[1])), Error::Doomed { .. }));
    let good = refused(s.launch(&k.inc, grid(), (&mut a, Len)));
    assert!(matches!(&good, Error::Doomed { .. }), "{good}");
    assert_eq!(good.root().to_string(), first.to_string());
    device.faults().fail_nth(Call::End, 1, Severity::Call);
    let (mut s, error) = s.end().unwrap_err().into_parts();
    assert_eq!(error.to_string(), first.to_string(), "also when the driver refuses the end itself");
    assert_eq!(device.faults().count(Call::Seal), seals);
    assert_eq!(s.read(&a).unwrap(), [0; N]);
    assert_eq!(s.read(&b).unwrap(), [0; N], "a failure in the window taints nothing from outside");
    assert_all_works(&device, &mut s, &k);
}

/// Returning an older, unrelated error from `end` loses a good graph, or leaves the window open.
#[test]
fn fail_03_an_older_failure_surfaces_once_and_not_at_the_end() {
    let Some((device, stepper)) = stepped(1) else { return };
    let k = Kernels::load(&device);
    let mut s = device.stream().unwrap();
    let (mut a, mut b) = (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(N).unwrap());
    stepper.run_all();
    s.launch(&k.fill, grid(), (&mut a, 1u32, Len)).unwrap();
    device.faults().fail_nth(Call::Execute, 1, Severity::Call);
    let mut s = s.prepare().unwrap().begin().unwrap();
    s.launch(&k.inc, grid(), (&mut b, Len)).unwrap();
    stepper.run_all();
    let (mut graph, mut s) = s.end().unwrap();
    graph.replay(&mut s).unwrap();
    let old = refused(s.sync());
    assert!(matches!(old, Error::Driver { call: Call::Execute, .. }), "{old}");
    s.sync().unwrap();
    assert_eq!(s.read(&b).unwrap(), [1; N]);
    assert_tainted(&mut s, &a, &old);
}

/// One sink of errors for all streams makes the innocent fail, and the guilty look fine.
#[test]
fn fail_04_a_refused_launch_is_the_callers_own_and_nobody_elses() {
    let Some(device) = device(1) else { return };
    let k = Kernels::load(&device);
    let bad = illegal_block(&device);
    let (mut a, mut n) = (device.stream().unwrap(), device.stream().unwrap());
    let (mut x, mut y) = (a.alloc::<u32>(N).unwrap(), n.alloc::<u32>(N).unwrap());
    let error = refused(a.launch(&bad, grid(), (&mut x,) /*FIXME lens*/));
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    n.launch(&k.inc, grid(), (&mut y, Len)).unwrap();
    n.sync().unwrap();
    assert_eq!(n.read(&y).unwrap(), [1; N]);
    // The call has said it: what is left is the taint, until the bytes are written.
    a.sync().unwrap();
    assert_tainted(&mut a, &x, &error);
    a.launch(&k.fill, grid(), (&mut x, 4u32, Len)).unwrap();
    assert_eq!(a.read(&x).unwrap(), [4; N]);
}

/// The same for a failure that its call could not know of: the first `sync` of that stream reports it, once.
#[test]
fn fail_04_a_late_failure_is_reported_once_by_the_stream_that_erred() {
    let Some((device, stepper)) = stepped(1) else { return };
    let k = Kernels::load(&device);
    let (mut a, mut n) = (device.stream().unwrap(), device.stream().unwrap());
    let (mut x, mut y) = (a.alloc::<u32>(N).unwrap(), n.alloc::<u32>(N).unwrap());
    stepper.run_all();
    a.launch(&k.fill, grid(), (&mut x, 1u32, Len)).unwrap();
    n.launch(&k.inc, grid(), (&mut y, Len)).unwrap();
    device.faults().fail_nth(Call::Execute, 1, Severity::Call);
    n.sync().unwrap();
    assert_eq!(n.read(&y).unwrap(), [1; N]);
    let error = refused(a.sync());
    assert!(matches!(error, Error::Driver { call: Call::Execute, .. }), "{error}");
    a.sync().unwrap();
    n.sync().unwrap();
    a.launch(&k.fill, grid(), (&mut x, 4u32, Len)).unwrap();
    a.sync().unwrap();
    assert_eq!(a.read(&x).unwrap(), [4; N]);
}

/// A failed window of one stream must not doom the window of a neighbour on the same slot.
#[test]
fn fail_04_a_failed_window_is_nobody_elses() {
    let Some(device) = device(1) else { return };
    let k = Kernels::load(&device);
    let bad = illegal_block(&device);
    let mut setup = device.stream().unwrap();
    let (mut x, mut y) = (setup.alloc::<u32>(N).unwrap(), setup.alloc::<u32>(N).unwrap());
    let mut a = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let mut n = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let error = refused(a.launch(&bad, grid(), (&mut x,) /*FIXME lens*/));
    n.launch(&k.inc, grid(), (&mut y, Len)).unwrap();
    let (mut a, ended) = a.end().unwrap_err().into_parts();
    assert_eq!(ended.to_string(), error.to_string());
    n.launch(&k.inc, grid(), (&mut y, Len)).unwrap();
    let (mut graph, mut n) = n.end().unwrap();
    graph.replay(&mut n).unwrap();
    assert_eq!(n.read(&y).unwrap(), [2; N]);
    n.sync().unwrap();
    a.sync().unwrap();
    assert_eq!(a.read(&x).unwrap(), [0; N]);
    assert_all_works(&device, &mut a, &k);
}
