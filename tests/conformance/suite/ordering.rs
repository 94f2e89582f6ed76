//! What waits for what: uses that meet on real threads, which end, and of which none is lost; and what waits, and does not
//! wait, for a stream that is held up.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::support::*;
use super::zoo;

const ROUNDS: usize = 400;

/// Runs `test` on a thread of its own, so that a deadlock is a failure and not a test that never ends.
fn ends(test: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let thread = thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    match ended.recv_timeout(Duration::from_secs(300)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("deadlock"),
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => thread.join().unwrap(),
    }
}

/// Locks taken in the order of the arguments would deadlock as soon as two threads name them in opposite orders.
#[test]
fn uses_that_meet_in_opposite_orders_on_two_threads_end() {
    ends(|| {
        let Some((device, k)) = working(2) else { return };
        let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
        let both = zoo::sum::<f32>().load(&device).unwrap();
        let (mut x, mut y) = (a.alloc::<f32>(N).unwrap(), b.alloc::<f32>(N).unwrap());
        let mut count_x = a.record(|work| work.launch(&k.inc, Grid::covering(N), (&mut x, Len))).unwrap().0;
        let mut count_y = b.record(|work| work.launch(&k.inc, Grid::covering(N), (&mut y, Len))).unwrap().0;
        let (mut to_a, mut to_b) = (a.alloc::<f32>(N).unwrap(), b.alloc::<f32>(N).unwrap());
        thread::scope(|scope| {
            let (x, y, both) = (&x, &y, &both);
            let (to_a, to_b) = (&mut to_a, &mut to_b);
            let (count_x, count_y) = (&mut count_x, &mut count_y);
            let (a, b) = (&mut a, &mut b);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    count_x.replay(a).unwrap();
                    a.launch(both, Grid::covering(N), (x, y, &mut *to_a, Len, Len, Len)).unwrap();
                }
            });
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    count_y.replay(b).unwrap();
                    b.launch(both, Grid::covering(N), (y, x, &mut *to_b, Len, Len, Len)).unwrap();
                }
            });
        });
        assert!(all(&a.read(&x).unwrap(), ROUNDS as f32));
        assert!(all(&a.read(&y).unwrap(), ROUNDS as f32));
        device.check().unwrap();
    });
}

/// Two graphs that conflict in both directions, each replayed as fast as its own thread can.
#[test]
fn conflicting_graphs_replayed_on_two_threads_lose_no_step() {
    ends(|| {
        let Some((device, k)) = working(2) else { return };
        let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
        let (mut x, mut y) = (a.alloc::<f32>(N).unwrap(), b.alloc::<f32>(N).unwrap());
        let mut graph = |stream: &mut Stream, flip: bool| {
            let step = |work: &mut Work<'_>| {
                let (first, second) = if flip { (&mut y, &mut x) } else { (&mut x, &mut y) };
                work.launch(&k.inc, Grid::covering(N), (first, Len))?;
                work.launch(&k.inc, Grid::covering(N), (second, Len))
            };
            stream.record(step).unwrap().0
        };
        let (mut one, mut other) = (graph(&mut a, false), graph(&mut b, true));
        thread::scope(|scope| {
            let (a, b) = (&mut a, &mut b);
            let (one, other) = (&mut one, &mut other);
            scope.spawn(move || (0..ROUNDS).for_each(|_| drop(one.replay(a).unwrap())));
            scope.spawn(move || (0..ROUNDS).for_each(|_| drop(other.replay(b).unwrap())));
        });
        assert!(all(&a.read(&x).unwrap(), 2.0 * ROUNDS as f32));
        assert!(all(&b.read(&y).unwrap(), 2.0 * ROUNDS as f32));
        device.check().unwrap();
    });
}

/// A replay looks at none of its members, so a launch of one must be what orders the two.
#[test]
fn a_replay_beside_a_launch_of_its_member_on_another_thread_loses_no_step() {
    ends(|| {
        let Some((device, k)) = working(2) else { return };
        let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
        let mut c = a.alloc::<f32>(N).unwrap();
        let mut graph = a.record(|work| work.launch(&k.inc, Grid::covering(N), (&mut c, Len))).unwrap().0;
        thread::scope(|scope| {
            let (a, graph) = (&mut a, &mut graph);
            scope.spawn(move || (0..ROUNDS).for_each(|_| drop(graph.replay(a).unwrap())));
            for _ in 0..ROUNDS {
                b.launch(&k.inc, Grid::covering(N), (&mut c, Len)).unwrap();
            }
        });
        assert!(all(&b.read(&c).unwrap(), 2.0 * ROUNDS as f32));
        device.check().unwrap();
    });
}

/// Members enter and leave graphs under every lock of the device, beside launches that take only their own.
#[test]
fn graphs_made_and_dropped_beside_launches_of_their_members_lose_no_step() {
    ends(|| {
        let Some((device, k)) = working(3) else { return };
        let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
        let mut x = a.alloc::<f32>(N).unwrap();
        let mut sums: Vec<_> = (0..2).map(|_| a.alloc::<f32>(N).unwrap()).collect();
        a.launch(&k.inc, Grid::covering(N), (&mut x, Len)).unwrap();
        let add = zoo::accumulate::<f32>().load(&device).unwrap();
        thread::scope(|scope| {
            let (x, add) = (&x, &add);
            let [one, other] = &mut sums[..] else { unreachable!() };
            let (a, b) = (&mut a, &mut b);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let step =
                        |work: &mut Work<'_>| work.launch(add, Grid::covering(N), (x, &mut *one, Len, Len));
                    let mut graph = a.record(step).unwrap().0;
                    graph.replay(a).unwrap();
                }
            });
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    b.launch(add, Grid::covering(N), (x, &mut *other, Len, Len)).unwrap();
                }
            });
        });
        for sum in &sums {
            assert!(all(&a.read(sum).unwrap(), ROUNDS as f32));
        }
        device.check().unwrap();
    });
}

/// A buffer of [`N`] elements that all hold `value`, already on the device.
fn ready(stream: &mut Stream, value: f32) -> Buffer<f32> {
    let mut buffer = stream.alloc_scratch(N).unwrap();
    stream.fill(&mut buffer, value).unwrap();
    stream.sync().unwrap();
    buffer
}

/// Whether all that the stream was asked for is done, though another one is held up.
fn goes_on(stream: &mut Stream) -> bool {
    stream.sync_timeout(PATIENCE).is_ok()
}

/// Without the event, a reader on another slot would see the bytes of before; and readers that queued up behind each other
/// would make sharing an input as slow as one stream.
#[test]
fn a_reader_waits_for_the_last_write_on_another_stream_and_not_for_other_readers() {
    let Some((device, _)) = working(3) else { return };
    let mut s: Vec<_> = (0..3).map(|_| device.stream().unwrap()).collect();
    let mut x = ready(&mut s[0], 0.0);
    let mut copies: Vec<_> = (0..3).map(|i| ready(&mut s[i], 0.0)).collect();
    let gate = Gate::close(&mut s[0]);
    s[0].fill(&mut x, 1.0).unwrap();
    s[1].copy(&x, &mut copies[1]).unwrap();
    assert!(is_held_up(&mut s[1]), "the write has not run");
    gate.open();
    assert!(all(&s[1].read(&copies[1]).unwrap(), 1.0));

    let gate = Gate::close(&mut s[0]);
    s[0].copy(&x, &mut copies[0]).unwrap();
    s[1].copy(&x, &mut copies[1]).unwrap();
    assert!(goes_on(&mut s[1]), "the reader on the other slot has not run, and need not");
    s[2].fill(&mut x, 9.0).unwrap();
    assert!(is_held_up(&mut s[2]), "a write waits for the reader that is left");
    gate.open();
    assert!(all(&s[2].read(&copies[0]).unwrap(), 1.0), "which saw what was there before the write");
    assert!(all(&s[0].read(&x).unwrap(), 9.0));
}

/// Halves that waited for each other would make splitting a buffer useless; a whole that knew only one half would free
/// or reuse bytes under the other.
#[test]
fn parts_that_share_no_byte_wait_for_nothing_of_each_other_and_their_bytes_wait_for_both() {
    let Some((device, _)) = working(3) else { return };
    let mut s: Vec<_> = (0..3).map(|_| device.stream().unwrap()).collect();
    let mut low = s[0].alloc_scratch::<f32>(2 * N).unwrap();
    let mut high = low.split_off(N).unwrap();
    let held = device.memory_usage().held;
    let gate = Gate::close(&mut s[0]);
    s[0].fill(&mut low, 1.0).unwrap();
    s[1].fill(&mut high, 2.0).unwrap();
    assert!(goes_on(&mut s[1]), "the halves share no byte");
    s[1].fill(low.slice_mut(N - 1..).unwrap(), 3.0).unwrap();
    assert!(is_held_up(&mut s[1]), "the last element of the low half is one of its");
    drop((low, high));
    let mut tenant = s[0].alloc_scratch::<f32>(2 * N).unwrap();
    assert_eq!(device.memory_usage().held, held, "the bytes of the halves are used again");
    s[2].fill(&mut tenant, 7.0).unwrap();
    assert!(is_held_up(&mut s[2]), "the low half is still being written");
    gate.open();
    assert!(all(&s[1].read(&tenant).unwrap(), 7.0));
}

/// A replay looks at none of its members' records: what orders it is what their uses left with the graph, and the links to
/// the graphs that it conflicts with.
#[test]
fn a_replay_waits_for_uses_of_its_members_and_for_conflicting_graphs_and_for_nothing_else() {
    let Some((device, k)) = working(3) else { return };
    let mut s: Vec<_> = (0..3).map(|_| device.stream().unwrap()).collect();
    let (mut c, x) = (ready(&mut s[0], 0.0), ready(&mut s[0], 5.0));
    let mut to = [ready(&mut s[1], 0.0), ready(&mut s[2], 0.0)];
    let mut counting =
        |s: &mut Stream| s.record(|work| work.launch(&k.inc, Grid::covering(N), (&mut c, Len))).unwrap().0;
    let (mut one, mut other) = (counting(&mut s[0]), counting(&mut s[1]));
    let reading = |s: &mut Stream, to: &mut Buffer<f32>| {
        s.record(|work| work.launch(&k.add1, Grid::covering(N), (&x, to, Len, Len))).unwrap().0
    };
    let mut reads = [reading(&mut s[1], &mut to[0]), reading(&mut s[2], &mut to[1])];
    let gate = Gate::close(&mut s[0]);
    one.replay(&mut s[0]).unwrap();
    reads[0].replay(&mut s[0]).unwrap();
    reads[1].replay(&mut s[2]).unwrap();
    assert!(goes_on(&mut s[2]), "graphs that only read one buffer have nothing to wait for");
    let ticket = other.replay(&mut s[1]).unwrap();
    assert!(is_held_up(&mut s[1]), "both count in one buffer");
    drop((one, other));
    s[2].fill(&mut c, 50.0).unwrap();
    assert!(is_held_up(&mut s[2]), "a member of dropped graphs waits for their last replays");
    assert!(!ticket.is_done());
    gate.open();
    assert!(all(&s[1].read(&c).unwrap(), 50.0));
    ticket.wait().unwrap();
    assert!(to.iter().all(|to| all(&s[0].read(to).unwrap(), 6.0)));
}

/// The graph was made after the use, so the use noted nothing in it: `end` must take it over.
#[test]
fn a_use_before_end_on_another_stream_is_waited_for_by_the_first_replay() {
    beside_gates(subject::ATTEMPTS, || {
        let Some((device, k)) = working(2) else { return };
        let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
        let mut x = ready(&mut a, 0.0);
        let mut y = ready(&mut a, 0.0);
        let mut a = a.prepare().unwrap().begin().unwrap();
        a.launch(&k.add1, Grid::covering(N), (&x, &mut y, Len, Len)).unwrap();
        let gate = Gate::close(&mut b);
        b.fill(&mut x, 5.0).unwrap();
        let (mut graph, mut a) = a.end().unwrap();
        graph.replay(&mut a).unwrap();
        assert!(is_held_up(&mut a), "the write of before `end` has not run");
        gate.open();
        assert!(all(&a.read(&y).unwrap(), 6.0));
    });
}

/// Two replays in one arena at once would mix up their temporaries.
#[test]
fn graphs_that_share_an_arena_run_one_after_the_other_in_any_order_of_their_drops() {
    let Some((device, k)) = working(2) else { return };
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let (x, y) = (ready(&mut a, 1.0), ready(&mut b, 2.0));
    let (mut to_a, mut to_b) = (ready(&mut a, 0.0), ready(&mut b, 0.0));
    let record = |s: &mut Stream, options: CaptureOptions, from: &Buffer<f32>, to: &mut Buffer<f32>| {
        let step = |work: &mut Work<'_>| {
            let mut t = work.alloc_scratch::<f32>(N)?;
            work.launch(&k.mul2, Grid::covering(N), (from, &mut t, Len, Len))?;
            work.launch(&k.add1, Grid::covering(N), (&t, to, Len, Len))
        };
        s.record_with(options, step).unwrap().0
    };
    let mut one = record(&mut a, CaptureOptions::new(), &x, &mut to_a);
    let held = device.memory_usage();
    let mut other = record(&mut b, CaptureOptions::new().share_arena(&one), &y, &mut to_b);
    assert_eq!(device.memory_usage(), held, "the second graph takes no memory");
    let gate = Gate::close(&mut a);
    one.replay(&mut a).unwrap();
    drop(one);
    other.replay(&mut b).unwrap();
    assert!(is_held_up(&mut b), "the dropped graph's replay is still in the arena");
    gate.open();
    assert!(all(&b.read(&to_b).unwrap(), 5.0));
    assert!(all(&b.read(&to_a).unwrap(), 3.0));
}
