//! Uses that meet on real threads: they end, and none is lost.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::support::*;



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
        let both = Program::<(In<f32>, In<f32>, Out<f32>)>::new("both")
            .host(|(x, y, out), _| out.iter_mut().zip(x.iter().zip(y)).for_each(|(out, (x, y))| *out = x + y))
            .load(&device)
            .unwrap();
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
                    a.launch(both, Grid::covering(N), (x, y, &mut *to_a) /*FIXME lens*/).unwrap();
                }
            });
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    count_y.replay(b).unwrap();
                    b.launch(both, Grid::covering(N), (y, x, &mut *to_b) /*FIXME lens*/).unwrap();
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
        let add = Program::<(In<f32>, InOut<f32>)>::new("add")
            .host(|(x, sum), _| sum.iter_mut().zip(x).for_each(|(sum, x)| *sum += x))
            .load(&device)
            .unwrap();
        thread::scope(|scope| {
            let (x, add) = (&x, &add);
            let [one, other] = &mut sums[..] else { unreachable!() };
            let (a, b) = (&mut a, &mut b);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let step =
                        |work: &mut Work<'_>| work.launch(add, Grid::covering(N), (x, &mut *one) /*FIXME lens*/);
                    let mut graph = a.record(step).unwrap().0;
                    graph.replay(a).unwrap();
                }
            });
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    b.launch(add, Grid::covering(N), (x, &mut *other) /*FIXME lens*/).unwrap();
                }
            });
        });
        for sum in &sums {
            assert!(all(&a.read(sum).unwrap(), ROUNDS as f32));
        }
        device.check().unwrap();
    });
}
