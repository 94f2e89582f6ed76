//! Cases OBJ-01, 03, 04 and 07, and E40 to E42: the graph object. OBJ-05 is in `cases_memory.rs`, OBJ-06 in
//! `cases_teardown.rs`.

mod support_objects;

use std::sync::{Arc, Mutex};

use dacapo::prelude::*;
use dacapo::{Call, Error};
use support_objects::*;

/// A graph of two kernels over a temporary: `y = (x + 1) * 2`.
fn two_steps(s: &mut Stream, k: &Kernels, x: &Buffer<u32>, y: &mut Buffer<u32>) -> Graph {
    let (graph, ()) = s
        .record(|w| {
            let mut t = w.alloc::<u32>(N)?;
            w.launch(&k.add1, grid(), (x, &mut t))?;
            w.launch(&k.mul2, grid(), (&t, &mut *y))
        })
        .unwrap();
    graph
}

/// Pins that go with the graph's handle, and not with its last replay, give the replay the next tenant's bytes.
#[test]
fn obj_01_a_graph_dropped_with_a_replay_in_flight_finishes_it_and_overwrites_nobody() {
    for slots in [1, 2] {
        let (device, stepper) = stepped(slots);
        let k = Kernels::load(&device);
        let mut other = device.stream().unwrap();
        let mut s = device.stream().unwrap();
        let (mut x, mut y) = (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(N).unwrap());
        s.write(&mut x, &[4; N]).unwrap();
        let mut graph = two_steps(&mut s, &k, &x, &mut y);
        stepper.run_all();
        let hold = stepper.hold();
        let ticket = graph.replay(&mut s).unwrap();
        drop((graph, x));
        // The temporary's and the input's bytes are free for others, who come after the replay.
        let canaries = sentinels(&mut other, 8, N, 77);
        other.memory_cleanup().unwrap();
        assert!(!ticket.is_done());
        // The neighbour's slot runs first, as far as the order lets it.
        stepper.run(other.id());
        drop(hold);
        stepper.run_all();
        assert!(ticket.is_done());
        assert_eq!(s.read(&y).unwrap(), [10; N]);
        assert_intact(&mut other, &canaries, 77);
        ticket.wait().unwrap();
    }
}

/// The same with nothing of the user's left but the output.
#[test]
fn obj_01_the_stream_may_be_dropped_too() {
    let (device, stepper) = stepped(2);
    let k = Kernels::load(&device);
    let mut reader = device.stream().unwrap();
    let mut s = device.stream().unwrap();
    let (mut x, mut y) = (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(N).unwrap());
    s.write(&mut x, &[4; N]).unwrap();
    let mut graph = two_steps(&mut s, &k, &x, &mut y);
    stepper.run_all();
    let before = reader.device().memory_usage();
    graph.replay(&mut s).unwrap();
    drop((graph, s, x, k));
    let canaries = sentinels(&mut reader, 8, N, 77);
    reader.memory_cleanup().unwrap();
    assert_eq!(reader.read(&y).unwrap(), [10; N]);
    assert_intact(&mut reader, &canaries, 77);
    drop(canaries);
    stepper.run_all();
    assert!(device.memory_usage().in_use < before.in_use);
}

/// Unlocked sharing of an executable loses replays or runs two at once.
#[test]
fn obj_03_two_threads_share_a_graph_and_no_replay_is_lost() {
    let device = device(2);
    let k = Kernels::load(&device);
    let mut s = device.stream().unwrap();
    let mut c = s.alloc::<u32>(N).unwrap();
    let (graph, ()) = s.record(|w| w.launch(&k.inc, grid(), (&mut c,))).unwrap();
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
    let (device, stepper) = stepped(2);
    let k = Kernels::load(&device);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut c = a.alloc::<u32>(N).unwrap();
    let (mut graph, ()) = a.record(|w| w.launch(&k.inc, grid(), (&mut c,))).unwrap();
    stepper.run_all();
    let first = graph.replay(&mut a).unwrap();
    let second = graph.replay(&mut b).unwrap();
    assert_eq!(stepper.run(b.id()), 0, "it waits for the other slot");
    assert!(!first.is_done() && !second.is_done());
    assert_eq!(stepper.run(a.id()), 1);
    assert!(first.is_done() && !second.is_done());
    assert_eq!(stepper.run(b.id()), 1);
    assert!(second.is_done());
    assert_eq!(b.read(&c).unwrap(), [2; N]);
}

/// Thresholds made for eager work must not flush in a window, and `end` must not call the driver once a node.
#[test]
fn obj_04_large_graphs_are_exact_and_call_the_driver_as_often_as_small_ones() {
    let mut ends = Vec::new();
    for nodes in [100u32, 2_000, 20_000] {
        let device = device(1);
        let step = Program::<(InOut<u32>, u32, Uniform<u32>)>::new("step")
            .host(|(c, by, table), _| c[0] = c[0].wrapping_mul(3).wrapping_add(by ^ table[1]))
            .load(&device)
            .unwrap();
        let mut s = device.stream().unwrap();
        let mut c = s.alloc::<u32>(1).unwrap();
        let before = baseline(&mut s);
        // What runs by itself meanwhile is no call of the window's.
        let asked = || device.faults().total() - device.faults().count(Call::Execute);
        let calls = asked();
        let waits = device.faults().count(Call::Synchronize);
        let mut work = s.prepare().unwrap().begin().unwrap();
        let mut t = work.alloc::<u32>(N).unwrap();
        work.fill(&mut t, 1).unwrap();
        for node in 0..nodes {
            // A table of each launch's own.
            work.launch(&step, Grid::covering(1), (&mut c, node, &[node, node * 7])).unwrap();
        }
        drop(t);
        let (mut graph, idle) = work.end().unwrap();
        s = idle;
        ends.push(asked() - calls);
        assert_eq!(device.faults().count(Call::Synchronize), waits, "no wait in the window, nor at its end");
        assert!((nodes..=nodes + 2).contains(&(graph.nodes() as u32)));
        assert!((nodes - 1..=nodes + 1).contains(&(graph.edges() as u32)), "a chain, and no more than that");
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
    let (zero, one) = (device(1), device(1));
    let k = Kernels::load(&zero);
    let foreign_kernels = Kernels::load(&one);
    let (mut on_zero, mut on_one) = (zero.stream().unwrap(), one.stream().unwrap());
    let (mut own, mut foreign) = (on_zero.alloc::<u32>(N).unwrap(), on_one.alloc::<u32>(N).unwrap());
    on_one.launch(&foreign_kernels.inc, grid(), (&mut foreign,)).unwrap();
    let (mut graph, ()) = on_zero.record(|w| w.launch(&k.inc, grid(), (&mut own,))).unwrap();
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
    let (launches, replays) = (zero.faults().count(Call::Launch), zero.faults().count(Call::Replay));
    is_foreign(&refused(on_zero.launch(&k.inc, grid(), (&mut foreign,))), "buffer");
    is_foreign(&refused(on_zero.launch(&foreign_kernels.inc, grid(), (&mut own,))), "kernel");
    is_foreign(&refused(on_zero.read(&foreign)), "buffer");
    let (mut theirs, ()) =
        on_one.record(|w| w.launch(&foreign_kernels.inc, grid(), (&mut foreign,))).unwrap();
    is_foreign(&refused(theirs.replay(&mut on_zero)), "graph");
    assert_eq!(zero.faults().count(Call::Launch), launches, "no call reaches the driver");
    assert_eq!(zero.faults().count(Call::Replay), replays);
    assert_eq!(on_one.read(&foreign).unwrap(), [1; N], "the foreign buffer is what it was");
    on_zero.fill(&mut own, 1).unwrap();

    let mut recording = on_zero.prepare().unwrap().begin().unwrap();
    recording.launch(&k.inc, grid(), (&mut own,)).unwrap();
    is_foreign(&refused(recording.launch(&k.inc, grid(), (&mut foreign,))), "buffer");
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
    let device = device(1);
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
    for buffers in [1usize, 1_000] {
        let (device, stepper) = stepped(2);
        let k = Kernels::load(&device);
        let mut s = device.stream().unwrap();
        let mut other = device.stream().unwrap();
        let mut all: Vec<_> = (0..buffers).map(|_| s.alloc::<u32>(4).unwrap()).collect();
        stepper.run_all();
        let (mut graph, ()) =
            s.record(|w| all.iter_mut().try_for_each(|b| w.launch(&k.inc, Grid::covering(4), (b,)))).unwrap();
        assert_eq!(graph.nodes(), buffers);
        // Every member is used on another slot, and none of it has run.
        all.iter_mut().for_each(|b| other.fill(&mut *b, 1).unwrap());
        let before = device.faults().total();
        graph.replay(&mut s).unwrap();
        let first = device.faults().total() - before;
        graph.replay(&mut s).unwrap();
        calls.push((first, device.faults().total() - before - first));
        stepper.run_all();
        assert_eq!(s.read(&all[buffers - 1]).unwrap(), [3; 4]);
    }
    // The first waits once, for the last of the other slot's uses; the second for nothing.
    assert_eq!(calls, [(2, 1), (2, 1)]);
}

/// A drop that waits for the stream stalls the thread that only wanted to be rid of the graph. Here it would never end.
#[test]
fn e41_dropping_a_graph_with_work_in_flight_does_not_wait_and_neither_does_the_end_of_a_capture() {
    let (device, stepper) = stepped(1);
    let k = Kernels::load(&device);
    let mut s = device.stream().unwrap();
    let mut c = s.alloc::<u32>(N).unwrap();
    let _hold = stepper.hold();
    let waits = device.faults().count(Call::Synchronize);
    let (mut graph, ()) = s.record(|w| w.launch(&k.inc, grid(), (&mut c,))).unwrap();
    let ticket = graph.replay(&mut s).unwrap();
    drop(graph);
    drop(c);
    assert!(!ticket.is_done());
    assert_eq!(stepper.pending(s.id()), 2, "the zeroing and the replay");
    assert_eq!(device.faults().count(Call::Synchronize), waits);
    stepper.run_all();
    assert!(ticket.is_done());
}

/// A future that waits in its drop hangs whoever gives up on it, also while a panic unwinds.
#[test]
fn e42_dropping_a_future_or_a_ticket_with_work_in_flight_does_not_wait() {
    let (device, stepper) = stepped(1);
    let k = Kernels::load(&device);
    let mut s = device.stream().unwrap();
    let mut c = s.alloc::<u32>(N).unwrap();
    let (mut graph, ()) = s.record(|w| w.launch(&k.inc, grid(), (&mut c,))).unwrap();
    let hold = stepper.hold();
    let waits = device.faults().count(Call::Synchronize);
    let (ticket, future) = (graph.replay(&mut s).unwrap(), s.read_async(&c).unwrap());
    drop((ticket, future));
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let ticket = graph.replay(&mut s).unwrap();
        let future = s.read_async(&c).unwrap();
        assert!(ticket.is_done(), "unwinding drops a future that is in flight");
        drop(future);
    }));
    assert!(unwound.is_err());
    assert_eq!(stepper.pending(s.id()), 5);
    assert_eq!(device.faults().count(Call::Synchronize), waits);
    drop(hold);
    stepper.run_all();
    assert_eq!(s.read(&c).unwrap(), [2; N], "what was given up on ran all the same");
    for _ in 0..100 {
        assert_eq!(s.read(&c).unwrap(), [2; N]);
    }
}
