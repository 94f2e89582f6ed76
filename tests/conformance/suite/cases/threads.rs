//! Threads, and the order of streams: cases THR-01, THR-03 and STR-02 to STR-05.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dacapo::Call;

use super::support::*;
use super::zoo;

/// The ordinary things that another thread does, each of which kills some driver's capture.
#[derive(Clone, Copy, Debug)]
enum Ordinary {
    Allocate,
    AllocateAPage,
    Free,
    Sync,
    Cleanup,
    Query,
    Compile,
    Upload,
}

impl Ordinary {
    const ALL: [Ordinary; 8] = [
        Ordinary::Allocate,
        Ordinary::AllocateAPage,
        Ordinary::Free,
        Ordinary::Sync,
        Ordinary::Cleanup,
        Ordinary::Query,
        Ordinary::Compile,
        Ordinary::Upload,
    ];

    /// Does it once, and checks what came of it.
    fn go(self, s: &mut Stream, k: &Kernels, data: &mut Buffer<f32>) {
        match self {
            Ordinary::Allocate => assert!(all(&s.alloc::<f32>(LEN).and_then(|b| s.read(&b)).unwrap(), 0.0)),
            Ordinary::AllocateAPage => drop(s.alloc::<f32>(LARGE + 64).unwrap()),
            Ordinary::Free => drop(filled(s, 3.0)),
            Ordinary::Sync => s.sync().unwrap(),
            Ordinary::Cleanup => s.memory_cleanup().unwrap(),
            Ordinary::Query => {
                let before = s.read(&*data).unwrap()[0];
                let (mut graph, ()) = s.record(|w| w.launch(&k.inc, grid(), (&mut *data, Len))).unwrap();
                let ticket = graph.replay(s).unwrap();
                while !ticket.is_done() {
                    thread::yield_now();
                }
                assert!(all(&s.read(&*data).unwrap(), before + 1.0));
            }
            Ordinary::Compile => {
                let kernel = zoo::fill().load(&s.device()).unwrap();
                s.launch(&kernel, grid(), (&mut *data, 8.0f32, Len)).unwrap();
                assert!(all(&s.read(&*data).unwrap(), 8.0));
            }
            Ordinary::Upload => {
                s.write(&mut *data, &[6.0; LEN]).unwrap();
                assert!(all(&s.read(&*data).unwrap(), 6.0));
            }
        }
    }
}

/// Captures, replays and checks until `done`, at least once; returns how often.
fn capture_until(done: &AtomicBool, device: &Device, k: &Kernels) -> usize {
    let mut s = device.stream().unwrap();
    let input = filled(&mut s, 1.0);
    let mut output = s.alloc::<f32>(LEN).unwrap();
    let mut rounds = 0;
    while rounds == 0 || !done.load(Ordering::Relaxed) {
        s.fill(&mut output, 0.0).unwrap();
        let mut recording = s.prepare().unwrap().begin().unwrap();
        let mut tmp = recording.alloc::<f32>(LEN).unwrap();
        recording.launch(&k.add1, grid(), (&input, &mut tmp, Len, Len)).unwrap();
        recording.launch(&k.mul2, grid(), (&tmp, &mut output, Len, Len)).unwrap();
        drop(tmp);
        let (mut graph, idle) = recording.end().unwrap();
        s = idle;
        assert_eq!(graph.nodes(), 2);
        graph.replay(&mut s).unwrap();
        assert!(all(&s.read(&output).unwrap(), 4.0));
        rounds += 1;
    }
    rounds
}

/// In a driver's global mode, any thread's allocation, copy or wait kills the capture, and that thread gets the error
/// as well. On one slot and on two, neither side here ever notices the other.
#[test]
fn thr_01_nothing_ordinary_on_another_thread_disturbs_a_capture_or_is_disturbed_by_it() {
    const ROUNDS: usize = 200;
    for slots in [1, 2] {
        let Some((device, k)) = working(slots) else { return };
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let captures = scope.spawn(|| capture_until(&done, &device, &k));
            let ordinary = scope.spawn(|| {
                let mut s = device.stream().unwrap();
                let mut data = filled(&mut s, 0.0);
                for kind in Ordinary::ALL {
                    (0..ROUNDS).for_each(|_| kind.go(&mut s, &k, &mut data));
                }
            });
            let outcome = ordinary.join();
            done.store(true, Ordering::Relaxed);
            assert!(captures.join().unwrap() > 0);
            outcome.unwrap();
        });
        device.check().unwrap();
        assert!(!device.captures().any_active());
    }
}

/// The same without luck: the window is open from the first operation of the other stream to the last.
#[test]
fn thr_01_everything_ordinary_runs_to_its_end_while_a_window_stays_open() {
    for slots in [1, 2] {
        let Some((device, k)) = working(slots) else { return };
        let (mut s, mut other) = (device.stream().unwrap(), device.stream().unwrap());
        let input = filled(&mut s, 1.0);
        let mut output = s.alloc::<f32>(LEN).unwrap();
        let mut data = filled(&mut other, 0.0);
        let mut s = s.prepare().unwrap().begin().unwrap();
        for kind in Ordinary::ALL {
            s.launch(&k.add1, grid(), (&input, &mut output, Len, Len)).unwrap();
            kind.go(&mut other, &k, &mut data);
        }
        let (mut graph, mut s) = s.end().unwrap();
        assert_eq!(graph.nodes(), Ordinary::ALL.len());
        graph.replay(&mut s).unwrap();
        assert!(all(&s.read(&output).unwrap(), 2.0));
    }
}

/// Only some captures of a driver may end on another thread than they began on.
#[test]
fn thr_03_a_recording_ends_and_its_graph_replays_on_another_thread() {
    let Some((device, k)) = working(2) else { return };
    let mut s = device.stream().unwrap();
    let input = filled(&mut s, 1.0);
    let mut output = s.alloc::<f32>(LEN).unwrap();
    let mut s = s.prepare().unwrap().begin().unwrap();
    s.launch(&k.add1, grid(), (&input, &mut output, Len, Len)).unwrap();

    let ended = thread::spawn(move || {
        s.launch(&k.inc, grid(), (&mut output, Len)).unwrap();
        let (graph, s) = s.end().unwrap();
        (graph, s, output)
    });
    let (mut graph, s, output) = ended.join().unwrap();
    let replayed = thread::spawn(move || {
        let mut other = s.device().stream().unwrap();
        graph.replay(&mut other).unwrap();
        (graph, other.read(&output).unwrap(), output)
    });
    let (mut graph, values, output) = replayed.join().unwrap();
    assert!(all(&values, 3.0));
    let mut s = device.stream().unwrap();
    graph.replay(&mut s).unwrap();
    assert!(all(&s.read(&output).unwrap(), 3.0));
}

/// Without a dependency between the caller's stream, the warm-up and the replay, a replay reads inputs that nobody has
/// produced yet, and results are used before they are there.
#[test]
fn str_02_inputs_outputs_and_warm_up_on_different_streams_are_as_if_run_serially() {
    beside_gates(subject::ATTEMPTS, || {
        let Some((device, k)) = working(2) else { return };
        let (mut n, mut s) = (device.stream().unwrap(), device.stream().unwrap());
        let mut input = n.alloc::<f32>(LEN).unwrap();
        let (mut tmp, mut output) = (s.alloc::<f32>(LEN).unwrap(), s.alloc::<f32>(LEN).unwrap());
        n.sync().unwrap();
        s.sync().unwrap();

        let gate = Gate::close(&mut n);
        n.launch(&k.fill, grid(), (&mut input, 5.0f32, Len)).unwrap();
        let mut s = s.prepare().unwrap();
        s.launch(&k.add1, grid(), (&input, &mut tmp, Len, Len)).unwrap();
        assert!(s.sync_timeout(SHORT).is_err(), "the warm-up waits for the input");
        let mut s = s.begin().unwrap();
        s.launch(&k.add1, grid(), (&input, &mut tmp, Len, Len)).unwrap();
        s.launch(&k.mul2, grid(), (&tmp, &mut output, Len, Len)).unwrap();
        drop(tmp);
        let (mut graph, mut s) = s.end().unwrap();
        graph.replay(&mut s).unwrap();
        let mut values = n.read_async(&output).unwrap();

        assert!(is_held_up(&mut s), "and so does the replay");
        assert!(poll(&mut values).is_none());
        gate.open();
        assert!(all(&block_on(values).unwrap(), 12.0));
    });
}

/// A window that belongs to a backend stream which others share records their launches, or runs ours outside it.
#[test]
fn str_03_a_folded_neighbour_is_neither_recorded_nor_held_up() {
    let Some((device, k)) = working(1) else { return };
    let (mut a, mut n) = (device.stream().unwrap(), device.stream().unwrap());
    let input = filled(&mut a, 1.0);
    let mut output = a.alloc::<f32>(LEN).unwrap();

    let mut a = a.prepare().unwrap().begin().unwrap();
    let mut c = n.alloc::<f32>(LEN).unwrap();
    a.launch(&k.add1, grid(), (&input, &mut output, Len, Len)).unwrap();
    n.write(&mut c, &[0.0; LEN]).unwrap();
    let other = filled(&mut n, 9.0);
    a.launch(&k.inc, grid(), (&mut output, Len)).unwrap();
    n.launch(&k.inc, grid(), (&mut c, Len)).unwrap();
    a.launch(&k.inc, grid(), (&mut output, Len)).unwrap();
    assert!(all(&n.read(&c).unwrap(), 1.0), "the neighbour ran, with the window open");
    let (mut graph, mut a) = a.end().unwrap();

    let names: Vec<String> = (0..graph.nodes()).map(|n| graph.node(n).unwrap().name).collect();
    assert_eq!(names, ["add1", "inc", "inc"]);
    let with_other = device.memory_usage().in_use;
    drop(other);
    assert_eq!(
        with_other - device.memory_usage().in_use,
        LEN * 4,
        "the graph pins nothing of the neighbour's"
    );
    for _ in 0..2 {
        graph.replay(&mut a).unwrap();
        assert!(all(&a.read(&output).unwrap(), 4.0));
        assert!(all(&n.read(&c).unwrap(), 1.0));
    }
}

/// A limit that two large buffers exhaust: a third can only have the bytes of one that is gone.
fn room_for_two() -> DeviceOptions {
    DeviceOptions::new().max_streams(2).memory_limit(2 * LARGE * 4)
}

/// A queued task that keeps only the address of its input sees the bytes of the next tenant.
#[test]
fn str_04_a_queued_launch_sees_its_input_although_the_bytes_have_a_new_tenant() {
    let Some((device, k)) = working_with(room_for_two().max_streams(1)) else { return };
    let (mut a, mut n) = (device.stream().unwrap(), device.stream().unwrap());
    let large = Grid::covering(LARGE);
    let (mut x, mut y) = (a.alloc::<f32>(LARGE).unwrap(), a.alloc::<f32>(LARGE).unwrap());
    a.fill(&mut x, 1.0).unwrap();
    a.sync().unwrap();

    let gate = Gate::close(&mut a);
    a.launch(&k.add1, large, (&x, &mut y, Len, Len)).unwrap();
    drop(x);
    let mut next = n.alloc_scratch::<f32>(LARGE).expect("there is room only where `x` was");
    n.write(&mut next, &[77.0; LARGE]).unwrap();
    gate.open();
    assert!(all(&a.read(&y).unwrap(), 2.0));
    assert!(all(&n.read(&next).unwrap(), 77.0));
}

/// Memory that is freed in the order of the stream that made it, and not of the one that used it last, changes under
/// a reader.
#[test]
fn str_05_bytes_freed_on_their_own_stream_wait_for_a_reader_on_another() {
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
    drop(buffer);
    let mut next = a.alloc_scratch::<f32>(LARGE).expect("there is room only where `buffer` was");
    a.fill(&mut next, 50.0).unwrap();
    a.memory_cleanup().unwrap();
    assert!(is_held_up(&mut a), "the new tenant waits for the reader");
    gate.open();
    assert!(all(&b.read(&seen).unwrap(), 2.0));
    assert!(all(&a.read(&next).unwrap(), 50.0));
}

/// A cleanup asks for what is free by its handles; what is still read goes back to the driver after that.
#[test]
fn str_05_a_cleanup_gives_nothing_back_that_another_stream_still_reads() {
    for replays in [false, true] {
        let Some((device, k)) = working_with(room_for_two()) else { return };
        let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
        let large = Grid::covering(LARGE);
        let mut seen = b.alloc::<f32>(LARGE).unwrap();
        let mut buffer = a.alloc::<f32>(LARGE).unwrap();
        a.fill(&mut buffer, 1.0).unwrap();
        a.sync().unwrap();
        b.sync().unwrap();
        let held = device.memory_usage().held;
        let gate = if replays {
            let (mut graph, ()) =
                b.record(|w| w.launch(&k.add1, large, (&buffer, &mut seen, Len, Len))).unwrap();
            let gate = Gate::close(&mut b);
            graph.replay(&mut b).unwrap();
            gate
        } else {
            let gate = Gate::close(&mut b);
            b.launch(&k.add1, large, (&buffer, &mut seen, Len, Len)).unwrap();
            gate
        };
        drop(buffer);
        let frees = subject::calls_of(&device, Call::Free);
        a.memory_cleanup().unwrap();
        assert_eq!(a.compact().unwrap().buffers, 0, "there is no page to empty");
        assert_eq!((device.memory_usage().held, device.memory_usage().pending), (held, LARGE * 4));
        assert_eq!(subject::calls_of(&device, Call::Free), frees);
        gate.open();
        b.sync().unwrap();
        let only_seen = || {
            a.memory_cleanup().unwrap();
            (device.memory_usage().held, device.memory_usage().pending) == (LARGE * 4, 0)
        };
        assert!(eventually(only_seen), "{:?}", device.memory_usage());
        assert!(all(&b.read(&seen).unwrap(), 2.0));
        device.check().unwrap();
    }
}

/// Moving a buffer frees its old bytes, which a reader on another stream may not have read yet.
#[test]
fn str_05_bytes_that_a_compaction_left_wait_for_the_reader_that_was_queued_before_it() {
    let Some((device, k)) = working_with(DeviceOptions::new().max_streams(2)) else { return };
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    // Two pages' worth, of which the first and the last one stay.
    let mut spread: Vec<Buffer<f32>> = (0..40).map(|_| filled(&mut a, 1.0)).collect();
    let mut seen: Vec<Buffer<f32>> = (0..2).map(|_| b.alloc(LEN).unwrap()).collect();
    spread.drain(1..39);
    a.sync().unwrap();
    b.sync().unwrap();
    let gate = Gate::close(&mut b);
    for (buffer, seen) in spread.iter().zip(&mut seen) {
        b.launch(&k.add1, grid(), (buffer, seen, Len, Len)).unwrap();
    }
    let done = a.compact().unwrap();
    assert!(done.buffers > 0 && done.pages > 0, "{done:?}");
    // Whoever gets the old bytes overwrites them, and so does whoever owns the moved ones.
    let sentinels: Vec<Buffer<f32>> = (0..40).map(|_| filled(&mut a, 50.0)).collect();
    spread.iter_mut().for_each(|buffer| a.fill(buffer, 60.0).unwrap());
    a.memory_cleanup().unwrap();
    assert!(is_held_up(&mut a));
    gate.open();
    for (buffer, seen) in spread.iter().zip(&seen) {
        assert!(all(&b.read(seen).unwrap(), 2.0), "the old bytes");
        assert!(all(&b.read(buffer).unwrap(), 60.0));
    }
    assert!(sentinels.iter().all(|sentinel| all(&b.read(sentinel).unwrap(), 50.0)));
    device.check().unwrap();
}

/// The same where the last reader is a replay, of a graph that is gone by then.
#[test]
fn str_05_bytes_that_a_dropped_graph_reads_wait_for_its_last_replay() {
    let Some((device, k)) = working_with(room_for_two()) else { return };
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let large = Grid::covering(LARGE);
    let mut buffer = a.alloc::<f32>(LARGE).unwrap();
    a.fill(&mut buffer, 1.0).unwrap();
    let mut seen = b.alloc::<f32>(LARGE).unwrap();
    let (mut graph, ()) = b.record(|w| w.launch(&k.add1, large, (&buffer, &mut seen, Len, Len))).unwrap();
    a.sync().unwrap();
    b.sync().unwrap();

    let gate = Gate::close(&mut b);
    graph.replay(&mut b).unwrap();
    drop(buffer);
    a.memory_cleanup().unwrap();
    assert_eq!(device.memory_usage().in_use, 2 * LARGE * 4, "the graph pins it");
    drop(graph);
    assert_eq!(device.memory_usage().in_use, LARGE * 4);
    let mut next = a.alloc_scratch::<f32>(LARGE).expect("there is room only where `buffer` was");
    a.fill(&mut next, 50.0).unwrap();
    a.memory_cleanup().unwrap();
    assert!(is_held_up(&mut a), "the new tenant waits for the replay");
    gate.open();
    assert!(all(&b.read(&seen).unwrap(), 2.0));
    assert!(all(&a.read(&next).unwrap(), 50.0));
}
