//! Cases OBJ-01, 03, 04 and 07, and E40 to E42: the graph object. OBJ-05 is with what must not grow, OBJ-06 with teardown.

use std::sync::{Arc, Mutex};

use super::subject::calls_of;
use super::support::*;
use super::{assert_returns_to, baseline, kernels};
use dacapo::{Call, Error};

fn grid() -> Grid {
    Grid::covering(N)
}

/// A graph of two kernels over a temporary: `y = (x + 1) * 2`.
fn two_steps(s: &mut Stream, k: &Kernels<u32>, x: &Buffer<u32>, y: &mut Buffer<u32>) -> Graph {
    let (graph, ()) = s
        .record(|w| {
            let mut t = w.alloc::<u32>(N)?;
            w.launch(&k.add1, grid(), (x, &mut t, Len, Len))?;
            w.launch(&k.mul2, grid(), (&t, &mut *y, Len, Len))
        })
        .unwrap();
    graph
}

/// Pins that go with the graph's handle, and not with its last replay, give the replay the next tenant's bytes.
#[test]
fn obj_01_a_graph_dropped_with_a_replay_in_flight_finishes_it_and_overwrites_nobody() {
    for slots in [1, 2] {
        let Some(device) = device(slots) else { return };
        let k = Kernels::<u32>::load(&device);
        let mut other = device.stream().unwrap();
        let mut s = device.stream().unwrap();
        let (mut x, mut y) = (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(N).unwrap());
        s.write(&mut x, &[4; N]).unwrap();
        let mut graph = two_steps(&mut s, &k, &x, &mut y);
        s.sync().unwrap();
        let gate = Gate::close(&mut s);
        let ticket = graph.replay(&mut s).unwrap();
        drop((graph, x));
        // The temporary's and the input's bytes are free for others, who come after the replay.
        let canaries = Sentinels::of(&mut other, 8, N, 77u32);
        other.memory_cleanup().unwrap();
        assert!(!ticket.is_done());
        // The neighbour's slot runs first, as far as the order lets it.
        let _ = other.sync_timeout(SHORT);
        gate.open();
        assert_eq!(s.read(&y).unwrap(), [10; N]);
        assert!(canaries.are_intact(&mut other));
        ticket.wait().unwrap();
    }
}

/// The same with nothing of the user's left but the output.
#[test]
fn obj_01_the_stream_may_be_dropped_too() {
    let Some(device) = device(2) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut reader = device.stream().unwrap();
    let mut s = device.stream().unwrap();
    let (mut x, mut y) = (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(N).unwrap());
    s.write(&mut x, &[4; N]).unwrap();
    let mut graph = two_steps(&mut s, &k, &x, &mut y);
    s.sync().unwrap();
    let before = reader.device().memory_usage();
    let gate = Gate::close(&mut s);
    graph.replay(&mut s).unwrap();
    drop((graph, s, x, k));
    let canaries = Sentinels::of(&mut reader, 8, N, 77u32);
    reader.memory_cleanup().unwrap();
    let _ = reader.sync_timeout(SHORT);
    gate.open();
    assert_eq!(reader.read(&y).unwrap(), [10; N]);
    assert!(canaries.are_intact(&mut reader));
    drop(canaries);
    assert!(eventually(|| device.memory_usage().in_use < before.in_use));
}

/// Unlocked sharing of an executable loses replays or runs two at once.
#[test]
fn obj_03_two_threads_share_a_graph_and_no_replay_is_lost() {
    let Some(device) = device(2) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut s = device.stream().unwrap();
    let mut c = s.alloc::<u32>(N).unwrap();
    let (graph, ()) = s.record(|w| w.launch(&k.inc, grid(), (&mut c, Len))).unwrap();
    let graph = Arc::new(Mutex::new(graph));
    std::thread::scope(|threads| {
        for _ in 0..2 {
            let mut shared = Some(graph.clone());
            let device = &device;
            threads.spawn(move || {
                let mut s = device.stream().unwrap();
                let graph = shared.take().unwrap();
                (0..100).for_each(|_| drop(graph.lock().unwrap().replay(&mut s).unwrap()));
                drop(graph);
                s.sync().unwrap();
            });
        }
        drop(graph);
    });
    assert_eq!(s.read(&c).unwrap(), [200; N]);
}

/// Two streams' replays of one graph at once would be two writers of its buffers.
#[test]
fn obj_03_a_replay_on_another_stream_runs_after_the_one_in_flight() {
    let Some(device) = device(2) else { return };
    let k = Kernels::<u32>::load(&device);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut c = a.alloc::<u32>(N).unwrap();
    let (mut graph, ()) = a.record(|w| w.launch(&k.inc, grid(), (&mut c, Len))).unwrap();
    a.sync().unwrap();
    let gate = Gate::close(&mut a);
    let first = graph.replay(&mut a).unwrap();
    let second = graph.replay(&mut b).unwrap();
    assert!(is_held_up(&mut b), "it waits for the other slot");
    assert!(!first.is_done() && !second.is_done());
    gate.open();
    second.wait().unwrap();
    assert!(eventually(|| first.is_done()), "what it waited for is done as well");
    assert_eq!(b.read(&c).unwrap(), [2; N]);
}

/// Thresholds made for eager work must not flush in a window, and `end` must not call the driver once a node.
#[test]
fn obj_04_large_graphs_are_exact_and_call_the_driver_as_often_as_small_ones() {
    let mut ends = Vec::new();
    for nodes in [100u32, 2_000, 20_000] {
        let Some(device) = device(1) else { return };
        let step = kernels::step().load(&device).unwrap();
        let mut s = device.stream().unwrap();
        let mut c = s.alloc::<u32>(1).unwrap();
        let before = baseline(&mut s);
        // What runs by itself meanwhile is no call of the window's.
        let calls = subject::driver_calls(&device);
        let waits = calls_of(&device, Call::Synchronize);
        let mut work = s.prepare().unwrap().begin().unwrap();
        let mut t = work.alloc::<u32>(N).unwrap();
        work.fill(&mut t, 1).unwrap();
        for node in 0..nodes {
            // A table of each launch's own.
            work.launch(&step, Grid::covering(1), (&mut c, node, &[node, node * 7], Len, Len)).unwrap();
        }
        drop(t);
        let (mut graph, idle) = work.end().unwrap();
        s = idle;
        ends.extend(subject::driver_calls(&device).zip(calls).map(|(after, before)| after - before));
        assert_eq!(calls_of(&device, Call::Synchronize), waits, "no wait in the window, nor at its end");
        assert!((nodes..=nodes + 2).contains(&(graph.nodes() as u32)));
        assert!((nodes - 1..=nodes + 1).contains(&(graph.edges() as u32)), "a chain, and no more than that");
        s.sync().unwrap();
        let sealed = device.memory_usage();
        // A table takes the room of one aligned element, and its page an eighth more.
        let tables = nodes as usize * 256 * 9 / 8;
        assert!(sealed.held - before.held <= graph.arena_bytes() + tables, "{sealed:?}");
        let mut expected = 0u32;
        for _ in 0..3 {
            graph.replay(&mut s).unwrap();
            s.sync().unwrap();
            assert_eq!(device.memory_usage(), sealed, "a replay holds nothing more");
            expected = (0..nodes).fold(expected, |c, node| c.wrapping_mul(3).wrapping_add(node ^ (node * 7)));
        }
        assert_eq!(s.read(&c).unwrap(), [expected]);
        drop(graph);
        assert_returns_to(&mut s, before);
    }
    // Begin, end, one arena, one sealing; and for all tables together memory, pinned memory and one upload.
    assert!(ends.iter().all(|calls| *calls <= 7), "{ends:?}");
}

/// A device that is found by what is current, and not by what the handle says, records nothing and says nothing.
#[test]
fn obj_07_work_goes_to_the_streams_own_device_and_a_foreign_object_is_refused() {
    let (Some(zero), Some(one)) = (device(1), device(1)) else { return };
    let k = Kernels::<u32>::load(&zero);
    let foreign_kernels = Kernels::<u32>::load(&one);
    let (mut on_zero, mut on_one) = (zero.stream().unwrap(), one.stream().unwrap());
    let (mut own, mut foreign) = (on_zero.alloc::<u32>(N).unwrap(), on_one.alloc::<u32>(N).unwrap());
    on_one.launch(&foreign_kernels.inc, grid(), (&mut foreign, Len)).unwrap();
    let (mut graph, ()) = on_zero.record(|w| w.launch(&k.inc, grid(), (&mut own, Len))).unwrap();
    assert_eq!(graph.nodes(), 1);
    graph.replay(&mut on_zero).unwrap();
    assert_eq!(on_zero.read(&own).unwrap(), [1; N]);
    assert_eq!(on_one.read(&foreign).unwrap(), [1; N]);

    let is_foreign = |error: &Error, what: &str| match error {
        Error::WrongDevice { object, expected, found, .. } => {
            assert_eq!((*object, *expected, *found), (what, zero.index(), one.index()), "{error}");
        }
        other => panic!("{other}"),
    };
    let calls = || [Call::Launch, Call::Replay].map(|call| calls_of(&zero, call));
    let before = calls();
    is_foreign(&refused(on_zero.launch(&k.inc, grid(), (&mut foreign, Len))), "buffer");
    is_foreign(&refused(on_zero.launch(&foreign_kernels.inc, grid(), (&mut own, Len))), "kernel");
    is_foreign(&refused(on_zero.read(&foreign)), "buffer");
    let (mut theirs, ()) =
        on_one.record(|w| w.launch(&foreign_kernels.inc, grid(), (&mut foreign, Len))).unwrap();
    is_foreign(&refused(theirs.replay(&mut on_zero)), "graph");
    assert_eq!(calls(), before, "no call reaches the driver");
    assert_eq!(on_one.read(&foreign).unwrap(), [1; N], "the foreign buffer is what it was");
    on_zero.fill(&mut own, 1).unwrap();

    let mut recording = on_zero.prepare().unwrap().begin().unwrap();
    recording.launch(&k.inc, grid(), (&mut own, Len)).unwrap();
    is_foreign(&refused(recording.launch(&k.inc, grid(), (&mut foreign, Len))), "buffer");
    let (mut on_zero, error) = recording.end().unwrap_err().into_parts();
    is_foreign(&error, "buffer");
    assert_eq!(on_zero.read(&own).unwrap(), [1; N]);
    assert_eq!(on_one.read(&foreign).unwrap(), [1; N]);
    theirs.replay(&mut on_one).unwrap();
    assert_eq!(on_one.read(&foreign).unwrap(), [2; N]);
}

/// An empty graph is what a capture on the wrong device gives elsewhere: here it is what was asked for, and says so.
#[test]
fn obj_07_an_empty_window_is_a_graph_without_nodes_whose_replay_does_nothing() {
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
    let mut c = s.alloc::<u32>(N).unwrap();
    s.fill(&mut c, 3).unwrap();
    let (mut graph, ()) = s.record(|_| Ok(())).unwrap();
    assert_eq!((graph.nodes(), graph.edges(), graph.arena_bytes()), (0, 0, 0));
    let ticket = graph.replay(&mut s).unwrap();
    ticket.wait().unwrap();
    assert_eq!(s.read(&c).unwrap(), [3; N]);
}

/// One lock, check or wait a buffer makes large graphs slow to replay.
#[test]
fn e40_a_replay_calls_the_driver_as_often_for_a_thousand_buffers_as_for_one() {
    let mut calls = Vec::new();
    for buffers in [1usize, subject::MOST_HELD_UP] {
        let Some(device) = device(2) else { return };
        let k = Kernels::<u32>::load(&device);
        let mut s = device.stream().unwrap();
        let mut other = device.stream().unwrap();
        let mut all: Vec<_> = (0..buffers).map(|_| s.alloc::<u32>(4).unwrap()).collect();
        s.sync().unwrap();
        let (mut graph, ()) = s
            .record(|w| all.iter_mut().try_for_each(|b| w.launch(&k.inc, Grid::covering(4), (b, Len))))
            .unwrap();
        assert_eq!(graph.nodes(), buffers);
        // Every member is used on another slot, and none of it has run.
        let gate = Gate::close(&mut other);
        all.iter_mut().for_each(|b| other.fill(&mut *b, 1).unwrap());
        let asked = || subject::driver_calls(&device);
        let before = asked();
        graph.replay(&mut s).unwrap();
        let first = asked();
        graph.replay(&mut s).unwrap();
        let taken = |from: Option<u64>, to: Option<u64>| to.zip(from).map(|(to, from)| to - from);
        calls.push((taken(before, first), taken(first, asked())));
        gate.open();
        assert_eq!(s.read(&all[buffers - 1]).unwrap(), [3; 4]);
    }
    // The first waits once, for the last of the other slot's uses; the second for nothing.
    assert!(calls.iter().all(|calls| matches!(calls, (None | Some(2), None | Some(1)))), "{calls:?}");
}

/// A drop that waits for the stream stalls the thread that only wanted to be rid of the graph. Here it would never end.
#[test]
fn e41_dropping_a_graph_with_work_in_flight_does_not_wait_and_neither_does_the_end_of_a_capture() {
    beside_gates(subject::ATTEMPTS, || {
        let Some(device) = device(1) else { return };
        let k = Kernels::<u32>::load(&device);
        let mut s = device.stream().unwrap();
        let mut c = s.alloc::<u32>(N).unwrap();
        s.sync().unwrap();
        let gate = Gate::close(&mut s);
        let waits = calls_of(&device, Call::Synchronize);
        let (mut graph, ()) = s.record(|w| w.launch(&k.inc, grid(), (&mut c, Len))).unwrap();
        let ticket = graph.replay(&mut s).unwrap();
        drop(graph);
        drop(c);
        assert!(!ticket.is_done());
        assert_eq!(calls_of(&device, Call::Synchronize), waits);
        gate.open();
        ticket.wait().unwrap();
    });
}

/// A future that waits in its drop hangs whoever gives up on it, also while a panic unwinds.
#[test]
fn e42_dropping_a_future_or_a_ticket_with_work_in_flight_does_not_wait() {
    let Some(device) = device(1) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut s = device.stream().unwrap();
    let mut c = s.alloc::<u32>(N).unwrap();
    let (mut graph, ()) = s.record(|w| w.launch(&k.inc, grid(), (&mut c, Len))).unwrap();
    s.sync().unwrap();
    let gate = Gate::close(&mut s);
    let waits = calls_of(&device, Call::Synchronize);
    let (ticket, future) = (graph.replay(&mut s).unwrap(), s.read_async(&c).unwrap());
    drop((ticket, future));
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let ticket = graph.replay(&mut s).unwrap();
        let future = s.read_async(&c).unwrap();
        assert!(ticket.is_done(), "unwinding drops a future that is in flight");
        drop(future);
    }));
    assert!(unwound.is_err());
    assert_eq!(calls_of(&device, Call::Synchronize), waits);
    assert!(is_held_up(&mut s));
    gate.open();
    assert_eq!(s.read(&c).unwrap(), [2; N], "what was given up on ran all the same");
    for _ in 0..100 {
        assert_eq!(s.read(&c).unwrap(), [2; N]);
    }
}
