//! Operations inside the window: cases WIN-01, 02, 03, 04, 05, 06 and 08.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dacapo::{Call, Error, Pass, PhaseName};

use super::support::*;
use super::zoo::{self, Loaded};

/// A window that grows the pool leaves an allocation node in the graph, whose second replay fails.
#[test]
fn win_01_a_window_may_allocate_what_the_pool_has_never_seen() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let large = Grid::covering(LARGE);
    let input = filled(&mut s, 1.0);
    let mut output = s.alloc::<f32>(LARGE).unwrap();

    let mut s = s.prepare().unwrap();
    let mut warm = s.alloc::<f32>(LEN).unwrap();
    s.launch(&k.add1, grid(), (&input, &mut warm, Len, Len)).unwrap();
    let mut s = s.begin().unwrap();
    let allocations = subject::calls_of(&device, Call::Allocate);
    let mut tmp = s.alloc::<f32>(LARGE).unwrap();
    s.launch(&k.fill, large, (&mut tmp, 2.0f32, Len)).unwrap();
    s.launch(&k.mul2, large, (&tmp, &mut output, Len, Len)).unwrap();
    drop(tmp);
    assert_eq!(subject::calls_of(&device, Call::Allocate), allocations, "in the window it is only a name");
    let (mut first, s) = s.end().unwrap();

    let mut s = s.prepare().unwrap();
    let mut tmp = s.alloc::<f32>(LARGE).unwrap();
    s.launch(&k.fill, large, (&mut tmp, 2.0f32, Len)).unwrap();
    let mut s = s.begin().unwrap();
    s.launch(&k.mul2, large, (&tmp, &mut output, Len, Len)).unwrap();
    s.launch(&k.inc, large, (&mut output, Len)).unwrap();
    let (mut second, mut s) = s.end().unwrap();

    assert_eq!((first.nodes(), second.nodes()), (2, 2), "launches, and no node for memory");
    for _ in 0..3 {
        first.replay(&mut s).unwrap();
        assert!(all(&s.read(&output).unwrap(), 4.0));
        second.replay(&mut s).unwrap();
        assert!(all(&s.read(&output).unwrap(), 5.0));
    }
}

const MIB: usize = 1 << 20;

/// A retry that frees cached blocks inside a capture turns an out-of-memory into an invalidated capture.
#[test]
fn win_02_out_of_memory_in_a_window_is_out_of_memory_at_its_end() {
    let Some((device, _k)) = working_with(DeviceOptions::new().max_streams(1).memory_limit(8 * MIB)) else {
        return;
    };
    let mut s = device.stream().unwrap();
    let live = s.alloc::<u8>(4 * MIB).unwrap();
    drop(s.alloc::<u8>(3 * MIB).unwrap());
    s.sync().unwrap();
    assert_eq!(device.memory_usage().held, 7 * MIB, "3 MiB of them cached, and of the wrong size");

    let mut s = s.prepare().unwrap().begin().unwrap();
    let mut tmp = s.alloc::<u8>(6 * MIB).expect("in the window it is only a name");
    s.fill(&mut tmp, 7).unwrap();
    drop(tmp);
    let (mut s, error) = s.end().unwrap_err().into_parts();
    let Error::OutOfMemory { requested, held, limit, .. } = error else { panic!("{error}") };
    assert_eq!((requested, held, limit), (6 * MIB, 4 * MIB, Some(8 * MIB)));
    assert!(!device.captures().any_active());
    assert_eq!(device.memory_usage().in_use, 4 * MIB);

    drop(live);
    let mut eager = s.alloc::<u8>(6 * MIB).expect("reclaiming the cached 4 MiB makes room");
    s.fill(&mut eager, 7).unwrap();
    assert!(s.read(&eager).unwrap().iter().all(|byte| *byte == 7));
}

/// What the window itself pins is in its own way. Once `end` has failed it is not any more, so that the same request
/// finds room by reclaiming, with nothing given up by the user in between.
#[test]
fn win_02_the_request_that_failed_at_the_end_succeeds_eagerly_by_reclaiming() {
    let Some((device, _k)) = working_with(DeviceOptions::new().max_streams(1).memory_limit(8 * MIB)) else {
        return;
    };
    let mut s = device.stream().unwrap();
    let baseline = Baseline::take(&mut s);
    let mut pinned = s.alloc::<u8>(4 * MIB).unwrap();
    drop(s.alloc::<u8>(3 * MIB).unwrap());
    s.sync().unwrap();

    let mut s = s.prepare().unwrap().begin().unwrap();
    s.fill(&mut pinned, 1).unwrap();
    drop(pinned);
    let frees = subject::calls_of(&device, Call::Free);
    let mut tmp = s.alloc::<u8>(6 * MIB).expect("in the window it is only a name");
    s.fill(&mut tmp, 7).unwrap();
    assert_eq!(subject::calls_of(&device, Call::Free), frees, "nothing is reclaimed in the window");
    drop(tmp);
    let (mut s, error) = s.end().unwrap_err().into_parts();
    let Error::OutOfMemory { requested, held, .. } = error else { panic!("{error}") };
    assert_eq!((requested, held), (6 * MIB, 4 * MIB), "the cached 3 MiB were given back, and did not do");
    assert_eq!(device.memory_usage().in_use, 0);

    let mut eager = s.alloc::<u8>(6 * MIB).expect("what the window had pinned is free");
    s.fill(&mut eager, 7).unwrap();
    assert!(s.read(&eager).unwrap().iter().all(|byte| *byte == 7));
    drop(eager);
    assert!(baseline.returns(&mut s), "{:?}", device.memory_usage());
}

/// Nothing captures at `end`, so nothing forbids it to reclaim: cached blocks are no reason to fail.
#[test]
fn win_02_the_end_of_a_window_reclaims_cached_blocks() {
    let Some((device, _k)) = working_with(DeviceOptions::new().max_streams(1).memory_limit(8 * MIB)) else {
        return;
    };
    let mut s = device.stream().unwrap();
    drop((s.alloc::<u8>(3 * MIB).unwrap(), s.alloc::<u8>(4 * MIB).unwrap()));
    s.sync().unwrap();
    let (graph, ()) = s
        .record(|w| {
            let mut tmp = w.alloc::<u8>(6 * MIB)?;
            w.fill(&mut tmp, 7)
        })
        .unwrap();
    assert_eq!(graph.arena_bytes(), 6 * MIB);
    assert_eq!(device.memory_usage().held, 6 * MIB);
}

/// A limit that two large buffers exhaust.
fn room_for_two() -> DeviceOptions {
    DeviceOptions::new().max_streams(2).memory_limit(2 * LARGE * 4)
}

/// An allocator that asks a capturing stream whether it is done with some bytes spoils the capture, or fails itself.
/// Here nobody asks: a window has used nothing yet, and what ran before it is written down with the bytes.
#[test]
fn win_03_bytes_last_used_on_a_stream_that_records_by_now_are_handed_out_without_asking_it() {
    let Some((device, k)) = working_with(room_for_two()) else { return };
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let large = Grid::covering(LARGE);
    let mut buffer = a.alloc::<f32>(LARGE).unwrap();
    a.fill(&mut buffer, 1.0).unwrap();
    let mut seen = b.alloc::<f32>(LARGE).unwrap();
    a.sync().unwrap();
    b.sync().unwrap();

    let gate = Gate::close(&mut b);
    b.launch(&k.add1, large, (&buffer, &mut seen, Len, Len)).unwrap();
    let mut b = b.prepare().unwrap().begin().unwrap();
    drop(buffer);
    let waits = subject::calls_of(&device, Call::Synchronize);
    let mut next = a.alloc_scratch::<f32>(LARGE).expect("there is room only where `buffer` was");
    a.fill(&mut next, 50.0).unwrap();
    assert_eq!(subject::calls_of(&device, Call::Synchronize), waits, "nobody waits for anybody");
    assert!(is_held_up(&mut a), "the new tenant's first use comes after the old one's last");
    gate.open();
    b.launch(&k.mul2, large, (&next, &mut seen, Len, Len)).unwrap();
    let (mut graph, mut b) = b.end().expect("the window is as good as ever");
    assert!(all(&b.read(&seen).unwrap(), 2.0), "the old bytes");
    graph.replay(&mut b).unwrap();
    assert!(all(&b.read(&seen).unwrap(), 100.0));
    device.check().unwrap();
}

/// What an open window uses is nobody else's, however often others allocate, clean up and wait meanwhile; and it comes
/// back when the window's graph is gone.
#[test]
fn win_03_bytes_that_an_open_window_uses_are_handed_out_to_nobody_and_come_back_afterwards() {
    let Some((device, k)) = working_with(room_for_two()) else { return };
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let large = Grid::covering(LARGE);
    let mut seen = b.alloc::<f32>(LARGE).unwrap();
    b.sync().unwrap();
    let before = device.memory_usage();
    let mut buffer = a.alloc::<f32>(LARGE).unwrap();
    a.fill(&mut buffer, 1.0).unwrap();
    // Its last use before the window is on B.
    b.launch(&k.inc, large, (&mut buffer, Len)).unwrap();

    let mut b = b.prepare().unwrap().begin().unwrap();
    b.launch(&k.add1, large, (&buffer, &mut seen, Len, Len)).unwrap();
    drop(buffer);
    for _ in 0..3 {
        let Err(Error::OutOfMemory { requested, held, .. }) = a.alloc_scratch::<f32>(LARGE) else {
            panic!("the only bytes left are those that the window uses");
        };
        assert_eq!((requested, held), (LARGE * 4, 2 * LARGE * 4));
        a.memory_cleanup().unwrap();
        a.sync().unwrap();
    }
    let (mut graph, mut b) = b.end().expect("the window is as good as ever");
    graph.replay(&mut b).unwrap();
    assert!(all(&b.read(&seen).unwrap(), 3.0));
    assert!(a.alloc_scratch::<f32>(LARGE).is_err(), "now the graph uses them");

    graph.replay(&mut b).unwrap();
    drop(graph);
    let mut next = a.alloc_scratch::<f32>(LARGE).expect("they are back, after the replay in flight");
    a.fill(&mut next, 50.0).unwrap();
    assert!(all(&b.read(&seen).unwrap(), 3.0) && all(&a.read(&next).unwrap(), 50.0));
    drop(next);
    assert_eq!(device.memory_usage().in_use, before.in_use);
}

/// The same where the window is given up: its pins go with it.
#[test]
fn win_03_bytes_that_an_abandoned_window_used_come_back_too() {
    let Some((device, k)) = working_with(room_for_two()) else { return };
    let (mut a, b) = (device.stream().unwrap(), device.stream().unwrap());
    let (buffer, mut other) = (a.alloc::<f32>(LARGE).unwrap(), a.alloc::<f32>(LARGE).unwrap());
    a.sync().unwrap();
    let mut b = b.prepare().unwrap().begin().unwrap();
    b.launch(&k.add1, Grid::covering(LARGE), (&buffer, &mut other, Len, Len)).unwrap();
    drop((buffer, other));
    assert!(a.alloc_scratch::<f32>(LARGE).is_err());
    drop(b.abort());
    let both = [a.alloc::<f32>(LARGE).unwrap(), a.alloc::<f32>(LARGE).unwrap()];
    assert!(both.iter().all(|buffer| all(&a.read(buffer).unwrap(), 0.0)));
}

/// What a call on a recording stream was refused with: the operation, and the phase that it found.
fn refused<T>(outcome: Result<T, Error>) -> (&'static str, PhaseName) {
    match outcome {
        Err(Error::WrongPhase { operation, is, .. }) => (operation, is),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("not refused"),
    }
}

/// A hidden wait kills a driver's capture, and the error appears at `end`, far from its cause. On a `Stream` these
/// calls do not compile; a stream whose phase is known at run time refuses them before anything is asked of the driver.
#[test]
fn win_04_a_recording_stream_refuses_to_wait_at_once_and_records_on() {
    let Some((device, k)) = working(1) else { return };
    let mut s = AnyStream::from(device.stream().unwrap());
    let input = filled(&mut s, 1.0);
    let mut output = s.alloc::<f32>(LEN).unwrap();
    s.prepare().unwrap();
    s.begin().unwrap();
    let calls = subject::driver_calls(&device);
    let recording = |operation| (operation, PhaseName::Recording);
    let long = Duration::from_secs(60);
    assert_eq!(refused(s.read(&input)), recording("read"));
    assert_eq!(refused(s.read_timeout(&input, long)), recording("read"));
    assert_eq!(refused(s.read_into(&input, &mut [0.0; LEN])), recording("read"));
    assert_eq!(refused(s.read_async(&input)), recording("read_async"));
    assert_eq!(refused(s.sync()), recording("sync"));
    assert_eq!(refused(s.sync_timeout(long)), recording("sync"));
    assert_eq!(refused(s.profile(|_| Ok(()))), recording("profile"));
    assert_eq!(subject::driver_calls(&device), calls);

    s.launch(&k.add1, grid(), (&input, &mut output, Len, Len)).unwrap();
    let mut graph = s.end().unwrap();
    assert_eq!(graph.nodes(), 1);
    graph.replay(&mut s).unwrap();
    assert!(all(&s.read(&output).unwrap(), 2.0));
}

/// The other routes to a wait belong to somebody who does not record: they simply work, on the same slot too.
#[test]
fn win_04_others_read_wait_and_profile_beside_a_window() {
    let Some((device, k)) = working(1) else { return };
    let (mut s, mut neighbour) = (device.stream().unwrap(), device.stream().unwrap());
    let input = filled(&mut s, 1.0);
    let mut output = s.alloc::<f32>(LEN).unwrap();
    let (mut earlier, ()) = s.record(|w| w.launch(&k.mul2, grid(), (&input, &mut output, Len, Len))).unwrap();
    let gate = Gate::close(&mut s);
    let mut started = s.read_async(&input).unwrap();
    let ticket = earlier.replay(&mut s).unwrap();

    let mut s = s.prepare().unwrap().begin().unwrap();
    s.launch(&k.add1, grid(), (&input, &mut output, Len, Len)).unwrap();
    assert!(poll(&mut started).is_none());
    gate.open();
    ticket.wait().unwrap();
    assert!(all(&block_on(started).unwrap(), 1.0));
    assert!(all(&neighbour.read(&output).unwrap(), 2.0));
    neighbour.sync().unwrap();
    neighbour.profile(|w| w.launch(&k.inc, grid(), (&mut output, Len))).unwrap();
    let (mut graph, mut s) = s.end().unwrap();
    assert_eq!(graph.nodes(), 1);
    graph.replay(&mut s).unwrap();
    assert!(all(&s.read(&output).unwrap(), 2.0));
    device.check().unwrap();
}

/// A refused operation whose result nobody looked at leaves a graph that looks valid and misses a step.
#[test]
fn win_05_a_refused_operation_dooms_the_window_although_nobody_looked_at_its_result() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let input = filled(&mut s, 1.0);
    let mut output = filled(&mut s, 9.0);
    let mut s = s.prepare().unwrap().begin().unwrap();
    s.launch(&k.add1, grid(), (&input, &mut output, Len, Len)).unwrap();
    s.launch(&k.inc, grid(), (&mut output, Len)).unwrap();
    let _ = s.copy(input.slice(..5).unwrap(), &mut output);
    let _ = s.copy(input.slice(..6).unwrap(), &mut output);
    let after = s.launch(&k.inc, grid(), (&mut output, Len)).unwrap_err();
    assert!(matches!(&after, Error::Doomed { operation: "launch", .. }), "{after}");
    assert!(matches!(after.root(), Error::LengthMismatch { operation: "copy", source_len: 5, .. }));

    let (mut s, error) = s.end().unwrap_err().into_parts();
    assert!(matches!(error, Error::LengthMismatch { operation: "copy", source_len: 5, .. }), "{error}");
    assert!(all(&s.read(&output).unwrap(), 9.0), "nothing ran");
    let again = s.record(|w| w.launch(&k.inc, grid(), (&mut output, Len)));
    assert_eq!(again.expect("the stream is usable").0.nodes(), 1);
}

/// One backend records a host write, another refuses it lazily and fails `end`. Here it has one meaning.
#[test]
fn win_05_a_write_in_the_window_is_recorded() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut output = filled(&mut s, 9.0);
    let (mut graph, ()) = s
        .record(|w| {
            w.write(&mut output, &[5.0; LEN])?;
            w.launch(&k.inc, grid(), (&mut output, Len))
        })
        .unwrap();
    for _ in 0..2 {
        graph.replay(&mut s).unwrap();
        assert!(all(&s.read(&output).unwrap(), 6.0));
    }
}

/// Loads the kernel of a name at its first use, as a cache of compiled kernels does.
struct Lazy {
    device: Device,
    loaded: HashMap<&'static str, Loaded<zoo::Map<f32>>>,
}

impl Lazy {
    fn get(&mut self, name: &'static str) -> &Loaded<zoo::Map<f32>> {
        let Lazy { device, loaded } = self;
        loaded.entry(name).or_insert_with(|| {
            zoo::add1_named(name).load(device).expect("loading is free to happen while others, or we, record")
        })
    }
}

/// Compiling, tuning and set-up on first use wait and allocate, which kills a driver's capture, in an operation that
/// works everywhere else.
#[test]
fn win_06_a_kernel_may_be_loaded_and_tuned_at_its_first_use_inside_a_window() {
    let Some((device, _k)) = working(2) else { return };
    let mut s = device.stream().unwrap();
    let input = filled(&mut s, 1.0);
    let mut output = s.alloc::<f32>(LEN).unwrap();
    let mut lazy = Lazy { device: device.clone(), loaded: HashMap::new() };

    let mut s = s.prepare().unwrap().begin().unwrap();
    s.launch(lazy.get("cold"), grid(), (&input, &mut output, Len, Len)).unwrap();
    // The tuner measures its candidates for real, on a stream and in memory of its own.
    assert!(device.captures().is_capturing(s.id()));
    let mut bench = device.stream().unwrap();
    let candidates = ["tuned in rows", "tuned in tiles"].map(|name| {
        let (from, mut to) = (filled(&mut bench, 1.0), bench.alloc::<f32>(LEN).unwrap());
        let launch = |w: &mut Work<'_>| w.launch(lazy.get(name), grid(), (&from, &mut to, Len, Len));
        (bench.profile(launch).unwrap().1.device, name)
    });
    let (_, best) = candidates.into_iter().min().unwrap();
    let mut sum = s.alloc::<f32>(LEN).unwrap();
    s.launch(lazy.get(best), grid(), (&output, &mut sum, Len, Len)).unwrap();
    let (mut graph, mut s) = s.end().unwrap();
    assert_eq!(graph.nodes(), 2);
    graph.replay(&mut s).unwrap();
    assert!(all(&s.read(&sum).unwrap(), 3.0));

    let mut passes = Vec::new();
    let (mut warm, ()) = s
        .capture(|w| {
            passes.push(w.pass());
            w.launch(lazy.get("cold"), grid(), (&input, &mut output, Len, Len))?;
            w.launch(lazy.get(best), grid(), (&output, &mut sum, Len, Len))
        })
        .unwrap();
    assert_eq!(passes, [Pass::WarmUp, Pass::Recording]);
    warm.replay(&mut s).unwrap();
    assert!(all(&s.read(&sum).unwrap(), 3.0));
}

/// A finaliser that runs while something records destroys graphs and frees memory in the middle of the capture.
#[test]
fn win_08_old_objects_may_be_dropped_while_a_stream_records() {
    let Some((device, k)) = working(2) else { return };
    let (mut s, mut gated) = (device.stream().unwrap(), device.stream().unwrap());
    let input = filled(&mut s, 1.0);
    let mut kept = s.alloc::<f32>(LEN).unwrap();
    let mut output = s.alloc::<f32>(LEN).unwrap();
    let baseline = Baseline::take(&mut s);

    let record = |s: &mut Stream, to: &mut Buffer<f32>| {
        let step = s.record(|w| {
            let mut tmp = w.alloc::<f32>(LARGE)?;
            w.fill(&mut tmp, 1.0)?;
            w.launch(&k.add1, grid(), (&input, &mut *to, Len, Len))
        });
        step.unwrap().0
    };
    let mut idle_output = s.alloc::<f32>(LEN).unwrap();
    let idle = record(&mut s, &mut idle_output);
    let mut in_flight = record(&mut s, &mut kept);
    let buffers: Vec<Buffer<f32>> = (0..100).map(|_| filled(&mut s, 0.0)).collect();
    let future = s.read_async(&buffers[0]).unwrap();
    let host: Arc<Vec<f32>> = Arc::new(vec![0.0; LEN]);
    s.write(&mut idle_output, &host).unwrap();
    s.sync().unwrap();
    let gate = Gate::close(&mut gated);
    let ticket = in_flight.replay(&mut gated).unwrap();

    let mut s = s.prepare().unwrap().begin().unwrap();
    let before = subject::driver_calls(&device);
    drop((idle, in_flight, buffers, future, host, idle_output));
    s.launch(&k.mul2, grid(), (&input, &mut output, Len, Len)).unwrap();
    assert_eq!(
        subject::driver_calls(&device),
        before,
        "neither a drop nor a recorded launch is a call of the driver"
    );
    assert!(!ticket.is_done());
    gate.open();
    let (mut graph, mut s) = s.end().unwrap();

    assert_eq!(graph.nodes(), 1);
    ticket.wait().unwrap();
    assert!(all(&s.read(&kept).unwrap(), 2.0));
    graph.replay(&mut s).unwrap();
    assert!(all(&s.read(&output).unwrap(), 2.0));
    drop(graph);
    assert!(baseline.returns(&mut s), "{:?}", device.memory_usage());
}
