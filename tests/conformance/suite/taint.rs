//! Failures carried by the bytes that they left unwritten: what is tainted, by what, and until when.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dacapo::{Call, Error, ErrorKind, GridLimit};

use super::support::*;

/// A device with two slots, a stream on each, and three buffers that hold zeros.
struct Bench {
    device: Device,
    k: Kernels<u32>,
    a: Stream,
    b: Stream,
    x: Buffer<u32>,
    y: Buffer<u32>,
    z: Buffer<u32>,
}

impl Bench {
    fn new() -> Option<Self> {
        let device = device(2)?;
        let k = Kernels::load(&device);
        let (mut a, b) = (device.stream().unwrap(), device.stream().unwrap());
        let [x, y, z] = [(); 3].map(|()| a.alloc::<u32>(N).unwrap());
        a.sync().unwrap();
        Some(Bench { device, k, a, b, x, y, z })
    }

    /// `fill(x, 1)` on stream A, refused at its call.
    fn fail_launch_of_x(&mut self) -> Error {
        let error = refused(self.a.launch(&self.k.fill, beyond_limits(), (&mut self.x, 1, Len)));
        assert!(matches!(error, Error::Limit { limit: GridLimit::BlocksY, .. }), "{error}");
        error
    }
}

fn grid() -> Grid {
    Grid::covering(N)
}

/// A failure that takes the whole buffer with it, or that a partial write clears, loses good bytes or shows stale ones.
#[test]
fn a_failure_taints_exactly_the_bytes_that_it_was_to_write_and_a_write_clears_exactly_its_own() {
    let Some(Bench { k, mut a, mut x, .. }) = Bench::new() else { return };
    let out = x.slice_mut(16..32).unwrap();
    let error = refused(a.launch(&k.fill, beyond_limits(), (out, 1u32, Len)));
    assert_eq!(a.read(x.slice(..16).unwrap()).unwrap(), [0; 16]);
    assert_eq!(a.read(x.slice(32..).unwrap()).unwrap(), [0; 32]);
    assert_tainted(&mut a, &x, &error);
    for one in [16, 31] {
        let found = refused(a.read(x.slice(one..=one).unwrap()));
        assert_eq!(found.root().to_string(), error.to_string());
    }
    a.write(x.slice_mut(16..24).unwrap(), &[5; 8]).unwrap();
    assert_eq!(a.read(x.slice(..24).unwrap()).unwrap(), [[0; 16].as_slice(), &[5; 8]].concat());
    assert!(a.read(x.slice(24..25).unwrap()).is_err());
    a.fill(x.slice_mut(24..32).unwrap(), 6).unwrap();
    assert_eq!(
        a.read(x.slice(16..).unwrap()).unwrap()[..16],
        [5, 5, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 6]
    );
}

/// The reader of a skipped launch's output must hear of the first failure, not of the skip, on any stream.
#[test]
fn taint_reaches_readers_on_other_streams_through_skipped_launches_with_the_first_cause() {
    let Some(mut bench) = Bench::new() else { return };
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = ran.clone();
    let called = move || _ = counted.fetch_add(1, Ordering::Relaxed);
    let error = bench.fail_launch_of_x();
    let Bench { k, mut a, mut b, mut x, mut y, mut z, .. } = bench;
    b.launch(&k.add1, grid(), (&x, &mut y, Len, Len)).unwrap();
    a.host_call_with(Touches::new().reads(&y).writes(&mut z), called).unwrap();
    a.copy(&z, &mut y).unwrap();
    for buffer in [&x, &y, &z] {
        assert_tainted(&mut a, buffer, &error);
        assert_tainted(&mut b, buffer, &error);
    }
    assert_eq!(ran.load(Ordering::Relaxed), 0, "what reads tainted bytes does not run");
    // The calls have reported what is new, and what was skipped is nothing new.
    a.sync().unwrap();
    b.sync().unwrap();
    b.fill(&mut x, 4).unwrap();
    a.launch(&k.add1, grid(), (&x, &mut y, Len, Len)).unwrap();
    assert_eq!(b.read(&y).unwrap(), [5; N]);
    assert_tainted(&mut b, &z, &error);
    a.launch(&k.fill, grid(), (&mut z, 7u32, Len)).unwrap();
    assert_eq!(b.read(&z).unwrap(), [7; N]);
}

/// An in-place launch over tainted bytes reads them: it cannot heal them.
#[test]
fn an_in_place_launch_heals_nothing_and_a_partial_taint_skips_it_whole() {
    let Some(mut bench) = Bench::new() else { return };
    let error = refused(bench.a.copy(&bench.y, bench.x.slice_mut(..1).unwrap()));
    let Bench { k, mut a, mut x, .. } = bench;
    a.launch(&k.inc, grid(), (&mut x, Len)).unwrap();
    let half = refused(a.read(x.slice(N / 2..).unwrap()));
    assert_eq!(half.root().to_string(), error.to_string(), "all that the skipped launch was to write");
    a.fill(&mut x, 1).unwrap();
    a.launch(&k.inc, grid(), (&mut x, Len)).unwrap();
    assert_eq!(a.read(&x).unwrap(), [2; N]);
}

/// A failure that surfaces late is decided where the work runs: it flows through what was enqueued behind it.
#[test]
fn a_late_failure_flows_through_what_read_it() {
    let Some(bench) = Bench::new() else { return };
    let Bench { k, mut a, mut b, mut x, mut y, mut z, .. } = bench;
    let gate = Gate::close(&mut a);
    fail_late(&mut a, &mut x);
    b.launch(&k.add1, grid(), (&x, &mut y, Len, Len)).unwrap();
    let read = b.read_async(&y).unwrap();
    a.launch(&k.add1, grid(), (&y, &mut z, Len, Len)).unwrap();
    gate.open();
    let error = refused(a.sync());
    assert!(matches!(error, Error::CallbackPanicked { .. }));
    assert!(matches!(block_on(read), Err(Error::Tainted { .. })), "a read that was in flight");
    for buffer in [&x, &y, &z] {
        assert_tainted(&mut b, buffer, &error);
    }
    b.sync().unwrap();
}

/// Taint that is set when the failure is noticed, and not where it happened, hits bytes that were written since.
#[test]
fn a_late_failure_spares_what_was_overwritten_later() {
    let Some(bench) = Bench::new() else { return };
    let Bench { mut a, mut b, mut x, .. } = bench;
    let gate = Gate::close(&mut a);
    fail_late(&mut a, &mut x);
    b.write(x.slice_mut(..N / 2).unwrap(), &[8; N / 2]).unwrap();
    gate.open();
    assert_eq!(b.read(x.slice(..N / 2).unwrap()).unwrap(), [8; N / 2]);
    assert!(matches!(refused(b.read(x.slice(N / 2..).unwrap())), Error::Tainted { .. }));
    assert!(a.sync().is_err());
}

/// What was to be written later failed by itself: to blame a callback before it for that names what has nothing to do with
/// what the bytes should hold.
#[test]
fn a_late_failure_takes_no_blame_for_what_failed_after_it() {
    let Some(mut bench) = Bench::new() else { return };
    let gate = Gate::close(&mut bench.a);
    fail_late(&mut bench.a, &mut bench.x);
    let later = bench.fail_launch_of_x();
    let Bench { k, mut a, mut b, x, mut y, .. } = bench;
    b.launch(&k.add1, grid(), (&x, &mut y, Len, Len)).unwrap();
    gate.open();
    assert!(matches!(refused(a.sync()), Error::CallbackPanicked { .. }));
    for buffer in [&x, &y] {
        assert_tainted(&mut b, buffer, &later);
    }
}

/// Of several causes any may be named. But who asks twice must not be told of two.
#[test]
fn bytes_name_the_same_cause_until_they_are_written_again() {
    let Some(mut bench) = Bench::new() else { return };
    let known = bench.fail_launch_of_x();
    let Bench { k, mut a, mut b, x, mut y, mut z, .. } = bench;
    let (mut graph, ()) = b.record(|w| w.launch(&k.sum, grid(), (&y, &x, &mut z, Len, Len, Len))).unwrap();
    // Once before the gate: a driver may wait to make room for a graph that is new.
    assert!(graph.replay(&mut b).unwrap().wait().is_err());
    let gate = Gate::close(&mut a);
    fail_late(&mut a, &mut y);
    let ticket = graph.replay(&mut b).unwrap();
    let before = b.read_async(&z).unwrap();
    gate.open();
    let late = refused(a.sync());
    let named = refused(block_on(before));
    let causes = [&known, &late].map(|error| error.to_string());
    assert!(causes.contains(&named.root().to_string()), "{named}");
    assert!(causes.contains(&refused(ticket.wait()).to_string()));
    for stream in [&mut a, &mut b] {
        assert_tainted(stream, &z, named.root());
    }
    b.fill(&mut z, 3).unwrap();
    assert_eq!(b.read(&z).unwrap(), [3; N]);
}

/// The bytes of a failed launch's dead buffer belong to somebody else by the time it fails.
#[test]
fn a_late_failure_spares_the_next_owner_of_recycled_bytes() {
    let Some(bench) = Bench::new() else { return };
    let Bench { mut a, mut b, mut x, .. } = bench;
    let gate = Gate::close(&mut a);
    fail_late(&mut a, &mut x);
    drop(x);
    let heirs = Sentinels::of(&mut b, 8, N, 3u32);
    let unwritten: Vec<_> = (0..8).map(|_| a.alloc_scratch::<u32>(N).unwrap()).collect();
    gate.open();
    assert!(heirs.are_intact(&mut b));
    for scratch in &unwritten {
        a.read(scratch).unwrap();
    }
    assert!(a.sync().is_err());
}

/// A tainted input must not look like a good replay, nor stay in the graph for ever.
#[test]
fn a_replay_passes_the_root_cause_from_its_inputs_to_its_outputs_and_a_good_write_heals_it() {
    let Some(mut bench) = Bench::new() else { return };
    let (mut graph, ()) = {
        let Bench { a, k, x, y, z, .. } = &mut bench;
        a.record(|w| {
            let mut t = w.alloc::<u32>(N)?;
            w.launch(&k.add1, grid(), (&*x, &mut t, Len, Len))?;
            w.launch(&k.mul2, grid(), (&t, &mut *y, Len, Len))?;
            w.launch(&k.fill, grid(), (&mut *z, 9u32, Len))
        })
        .unwrap()
    };
    let error = bench.fail_launch_of_x();
    let Bench { mut a, mut b, mut x, y, z, .. } = bench;
    for _ in 0..2 {
        let ticket = graph.replay(&mut b).unwrap();
        let reported = refused(ticket.wait());
        assert_eq!(reported.root().to_string(), error.to_string());
        assert_tainted(&mut a, &y, &error);
        assert_eq!(a.read(&z).unwrap(), [9; N], "what does not depend on it ran");
    }
    b.sync().unwrap();
    a.write(&mut x, &[20; N]).unwrap();
    graph.replay(&mut b).unwrap().wait().unwrap();
    assert_eq!(a.read(&y).unwrap(), [42; N]);
}

/// Recording looks at no taint of the moment: the recorded work is whole, and only replays are skipped.
#[test]
fn a_launch_over_tainted_bytes_is_recorded_like_any_other() {
    let Some(mut bench) = Bench::new() else { return };
    bench.fail_launch_of_x();
    let Bench { k, mut a, mut x, mut y, .. } = bench;
    let (mut graph, ()) = a.record(|w| w.launch(&k.add1, grid(), (&x, &mut y, Len, Len))).unwrap();
    assert_eq!(graph.nodes(), 1);
    a.fill(&mut x, 1).unwrap();
    graph.replay(&mut a).unwrap();
    assert_eq!(a.read(&y).unwrap(), [2; N]);
}

/// Nothing of an abandoned recording ran: what came from outside must not suffer, what was born in it cannot be had.
#[test]
fn a_recording_that_never_seals_taints_only_what_was_born_in_it() {
    #[derive(Clone, Copy, Debug)]
    enum Ending {
        Aborted,
        Dropped,
        Evicted,
        Doomed,
        Refused,
    }
    for ending in [Ending::Aborted, Ending::Dropped, Ending::Evicted, Ending::Doomed, Ending::Refused] {
        let Some(Bench { device, k, a, mut b, mut x, .. }) = Bench::new() else { return };
        let mut a = a.prepare().unwrap().begin().unwrap();
        let mut born = a.alloc::<u32>(N).unwrap();
        a.launch(&k.inc, grid(), (&mut x, Len)).unwrap();
        a.launch(&k.add1, grid(), (&x, &mut born, Len, Len)).unwrap();
        match ending {
            Ending::Aborted => drop(a.abort()),
            Ending::Dropped => drop(a),
            Ending::Evicted => drop(device.evict(a.window().unwrap()).unwrap()),
            Ending::Doomed => {
                refused(a.launch(&k.fill, beyond_limits(), (&mut x, 1, Len)));
                drop(a.end().unwrap_err());
            }
            Ending::Refused => {
                if !subject::refuse_next(&device, Call::Seal) {
                    continue;
                }
                drop(a.end().unwrap_err());
            }
        }
        assert_eq!(b.read(&x).unwrap(), [0; N], "{ending:?}");
        let error = refused(b.read(&born));
        assert!(matches!(error, Error::NeverSealed { .. }), "{ending:?}: {error}");
        assert_eq!(error.kind(), ErrorKind::Tainted);
        let as_expected = match (ending, error.root()) {
            (Ending::Aborted, Error::Abandoned { how, .. }) => *how == dacapo::Abandonment::Aborted,
            (Ending::Dropped, Error::Abandoned { how, .. }) => *how == dacapo::Abandonment::Dropped,
            (Ending::Evicted, Error::Evicted { .. }) => true,
            (Ending::Doomed, Error::Limit { limit, .. }) => *limit == GridLimit::BlocksY,
            (Ending::Refused, Error::Driver { call, .. }) => *call == Call::Seal,
            _ => false,
        };
        assert!(as_expected, "{ending:?}: {}", error.root());
        // For ever: not even a write brings back what has no memory, and who reads it takes its root cause.
        assert!(matches!(refused(b.write(&mut born, &[1; N])), Error::NeverSealed { .. }));
        let skipped = refused(b.launch(&k.add1, grid(), (&born, &mut x, Len, Len)));
        assert!(matches!(skipped, Error::NeverSealed { .. }), "{skipped}");
        assert_tainted(&mut b, &x, error.root());
    }
}

/// What an error means for the program must not depend on where it is met.
#[test]
fn a_doomed_call_is_of_the_kind_of_its_cause_and_tainted_bytes_are_tainted() {
    let Some(Bench { k, a, mut x, mut y, .. }) = Bench::new() else { return };
    let mut a = a.prepare().unwrap().begin().unwrap();
    let limit = refused(a.launch(&k.fill, beyond_limits(), (&mut x, 1, Len)));
    assert_eq!(limit.kind(), ErrorKind::Exhausted);
    let doomed = refused(a.launch(&k.add1, grid(), (&x, &mut y, Len, Len)));
    assert!(matches!(doomed, Error::Doomed { operation: "launch", .. }));
    assert_eq!(doomed.kind(), ErrorKind::Exhausted);
    let mut a = a.end().unwrap_err().into_parts().0;
    assert_eq!(refused(a.write(&mut x, &[1])).kind(), ErrorKind::Misuse);
    let tainted = refused(a.read(&x));
    assert_eq!((tainted.kind(), tainted.root().kind()), (ErrorKind::Tainted, ErrorKind::Misuse));
    let (_graph, born) = a.record(|w| w.alloc::<u32>(N)).unwrap();
    assert_eq!(refused(a.read(&born)).kind(), ErrorKind::Tainted);
    assert_eq!(refused(a.alloc::<u32>(usize::MAX)).kind(), ErrorKind::Exhausted);
}
