//! Cases FAIL-01 to FAIL-04: panics, failed ends, and whose failure it is. What needs a driver that
//! refuses on demand, FAIL-05 among it, is tested on the host alone.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dacapo::{Call, Error, ErrorKind, GridLimit};

use super::support::*;

fn grid() -> Grid {
    Grid::covering(N)
}

/// Reads, allocates, and makes and replays a graph: what must work after any failure.
fn assert_all_works(device: &Device, s: &mut Stream, k: &Kernels<u32>) {
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
    let k = Kernels::<u32>::load(&device);
    let mut s = device.stream().unwrap();
    let mut c = s.alloc::<u32>(N).unwrap();
    let before = Baseline::take(&mut s);
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
    assert!(before.returns(&mut s));
}

/// The same for the by-value transitions, where unwinding drops the recording stream itself.
#[test]
fn fail_01_a_panic_that_drops_the_recording_stream_closes_the_window() {
    let Some(device) = device(2) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut other = device.stream().unwrap();
    let mut c = other.alloc::<u32>(N).unwrap();
    let before = Baseline::take(&mut other);
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
    assert!(before.returns(&mut other));
}

/// An early return drops the stream without a panic: same rule, and what was born in the recording says why it is lost.
#[test]
fn fail_01_a_dropped_recording_stream_discards_its_recording() {
    let Some(device) = device(2) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut other = device.stream().unwrap();
    let before = Baseline::take(&mut other);
    let mut s = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let mut born = s.alloc::<u32>(N).unwrap();
    s.launch(&k.fill, grid(), (&mut born, 1u32, Len)).unwrap();
    drop(s);
    assert!(!device.captures().any_active());
    let error = refused(other.read(&born));
    assert!(matches!(error.root(), Error::Abandoned { how: dacapo::Abandonment::Dropped, .. }), "{error}");
    drop(born);
    assert_all_works(&device, &mut other, &k);
    assert!(before.returns(&mut other));
}

/// A leaked window that blocks others, or that nobody can close, is the same as a hang.
#[test]
fn fail_01_a_forgotten_recording_harms_nobody_and_can_be_evicted() {
    let Some(device) = device(1) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut other = device.stream().unwrap();
    let mut pinned = other.alloc::<u32>(N).unwrap();
    let kept = other.alloc::<u32>(N).unwrap();
    let mut s = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let mut born = s.alloc::<u32>(N).unwrap();
    s.launch(&k.fill, grid(), (&mut born, 1u32, Len)).unwrap();
    s.launch(&k.inc, grid(), (&mut pinned, Len)).unwrap();
    let window = s.window().unwrap();
    subject::forget(s);
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
fn fail_02_an_end_that_finds_no_room_leaves_nothing_behind() {
    const LIMIT: usize = 12 << 20;
    let short = (CaptureOptions::new().arena_limit(1), 1 << 18);
    let large = (CaptureOptions::new(), LIMIT / 4);
    for (options, len) in [short, large] {
        let Some(device) = open(DeviceOptions::new().max_streams(1).memory_limit(LIMIT)) else { return };
        let k = Kernels::load(&device);
        let mut s = device.stream().unwrap();
        let mut c = s.alloc::<u32>(N).unwrap();
        let before = Baseline::take(&mut s);
        let mut survivor = None;
        let all = Grid::covering(len);
        let error = refused(s.record_with(options, |w| {
            let mut temporary = w.alloc_scratch::<u32>(len)?;
            let mut survives = w.alloc_scratch::<u32>(len)?;
            w.launch(&k.inc, grid(), (&mut c, Len))?;
            w.launch(&k.fill, all, (&mut temporary, 1, Len))?;
            w.launch(&k.add1, all, (&temporary, &mut survives, Len, Len))?;
            survivor = Some(survives);
            Ok(())
        }));
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
        assert!(!device.captures().any_active());
        let lost = refused(s.read(&survivor.take().unwrap()));
        assert!(matches!(lost, Error::NeverSealed { .. }), "{lost}");
        assert_eq!(lost.root().to_string(), error.to_string());
        assert_eq!(s.read(&c).unwrap(), [0; N], "bytes from outside are what they were");
        assert!(before.returns(&mut s));
        assert_all_works(&device, &mut s, &k);
        assert!(before.returns(&mut s));
    }
}

/// A cascade that reports its last error sends people to the wrong place; a graph that misses a launch must not exist.
#[test]
fn fail_03_end_returns_the_first_failure_and_seals_nothing() {
    let Some(device) = device(1) else { return };
    let k = Kernels::<u32>::load(&device);
    let (mut a, mut b) = {
        let mut s = device.stream().unwrap();
        (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(N).unwrap())
    };
    let Some(elsewhere) = super::support::device(1) else { return };
    let foreign = elsewhere.stream().unwrap().alloc::<u32>(N).unwrap();
    let seals = subject::calls_of(&device, Call::Seal);
    let mut s = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    s.launch(&k.inc, grid(), (&mut a, Len)).unwrap();
    s.launch(&k.add1, grid(), (&a, &mut b, Len, Len)).unwrap();
    let first = refused(s.launch(&k.fill, beyond_limits(), (&mut b, 1, Len)));
    assert!(matches!(first, Error::Limit { limit: GridLimit::BlocksY, .. }), "{first}");
    // Nobody looks at what comes after: wrong devices, wrong lengths, and what would have been right.
    let later = refused(s.launch(&k.add1, grid(), (&foreign, &mut b, Len, Len)));
    assert!(matches!(&later, Error::Doomed { .. }), "{later}");
    assert!(matches!(refused(s.write(&mut b, &[1])), Error::Doomed { .. }));
    let good = refused(s.launch(&k.inc, grid(), (&mut a, Len)));
    assert!(matches!(&good, Error::Doomed { .. }), "{good}");
    assert_eq!(good.root().to_string(), first.to_string());
    subject::refuse_next(&device, Call::End);
    let (mut s, error) = s.end().unwrap_err().into_parts();
    assert_eq!(error.to_string(), first.to_string(), "also when the driver refuses the end itself");
    assert_eq!(subject::calls_of(&device, Call::Seal), seals);
    assert_eq!(s.read(&a).unwrap(), [0; N]);
    assert_eq!(s.read(&b).unwrap(), [0; N], "a failure in the window taints nothing from outside");
    assert_all_works(&device, &mut s, &k);
}

/// Returning an older, unrelated error from `end` loses a good graph, or leaves the window open.
#[test]
fn fail_03_an_older_failure_surfaces_once_and_not_at_the_end() {
    let Some(device) = device(1) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut s = device.stream().unwrap();
    let (mut a, mut b) = (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(N).unwrap());
    let gate = Gate::close(&mut s);
    fail_late(&mut s, &mut a);
    let mut s = s.prepare().unwrap().begin().unwrap();
    s.launch(&k.inc, grid(), (&mut b, Len)).unwrap();
    gate.open();
    let (mut graph, mut s) = s.end().unwrap();
    graph.replay(&mut s).unwrap();
    let old = refused(s.sync());
    assert!(matches!(old, Error::CallbackPanicked { .. }), "{old}");
    s.sync().unwrap();
    assert_eq!(s.read(&b).unwrap(), [1; N]);
    assert_tainted(&mut s, &a, &old);
}

/// One sink of errors for all streams makes the innocent fail, and the guilty look fine.
#[test]
fn fail_04_a_refused_launch_is_the_callers_own_and_nobody_elses() {
    let Some(device) = device(1) else { return };
    let k = Kernels::<u32>::load(&device);
    let (mut a, mut n) = (device.stream().unwrap(), device.stream().unwrap());
    let (mut x, mut y) = (a.alloc::<u32>(N).unwrap(), n.alloc::<u32>(N).unwrap());
    let error = refused(a.launch(&k.fill, beyond_limits(), (&mut x, 1, Len)));
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
    let Some(device) = device(1) else { return };
    let k = Kernels::<u32>::load(&device);
    let (mut a, mut n) = (device.stream().unwrap(), device.stream().unwrap());
    let (mut x, mut y) = (a.alloc::<u32>(N).unwrap(), n.alloc::<u32>(N).unwrap());
    fail_late(&mut a, &mut x);
    n.launch(&k.inc, grid(), (&mut y, Len)).unwrap();
    n.sync().unwrap();
    assert_eq!(n.read(&y).unwrap(), [1; N]);
    let error = refused(a.sync());
    assert!(matches!(error, Error::CallbackPanicked { .. }), "{error}");
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
    let k = Kernels::<u32>::load(&device);
    let mut setup = device.stream().unwrap();
    let (mut x, mut y) = (setup.alloc::<u32>(N).unwrap(), setup.alloc::<u32>(N).unwrap());
    let mut a = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let mut n = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let error = refused(a.launch(&k.fill, beyond_limits(), (&mut x, 1, Len)));
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
