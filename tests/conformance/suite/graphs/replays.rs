//! Replays: what they compute with, in which order, and how often.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dacapo::Order;

use super::support::*;
use super::zoo;

#[test]
fn a_replay_computes_with_what_the_buffers_hold_by_then() {
    let Some((device, k)) = working(4) else { return };
    let mut stream = device.stream().unwrap();
    for len in [1usize, 3, 255, 1_000_003] {
        let grid = Grid::covering(len);
        let mut x = written(&mut stream, &ramp(len));
        let (mut graph, y) = stream
            .record(|work| {
                let mut a = work.alloc_scratch::<f32>(len)?;
                let mut y = work.alloc_scratch::<f32>(len)?;
                work.launch(&k.add1, grid, (&x, &mut a, Len, Len))?;
                work.launch(&k.mul2, grid, (&a, &mut y, Len, Len))?;
                Ok(y)
            })
            .unwrap();
        assert!(stream.read(&y).is_err(), "nothing has written it yet");
        for round in 0..4 {
            stream.fill(&mut x, round as f32).unwrap();
            graph.replay(&mut stream).unwrap();
            assert!(stream.read(&y).unwrap().iter().all(|y| *y == 2.0 * (round as f32 + 1.0)), "{len}");
        }
    }
}

#[test]
fn every_recorded_operation_happens_on_every_replay() {
    let Some((device, k)) = working(4) else { return };
    let mut stream = device.stream().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let (mut x, mut y) = (stream.alloc::<f32>(100).unwrap(), stream.alloc::<f32>(100).unwrap());
    let mut z = stream.alloc::<f64>(7).unwrap();
    let axpy = zoo::axpy().load(&device).unwrap();
    let (mut graph, sum) = stream
        .record(|work| {
            work.write(&mut x, ramp(100))?;
            work.launch(&k.inc, Grid::covering(100), (&mut x, Len))?;
            work.copy(&x, &mut y)?;
            work.write(y.slice_mut(3..5)?, &[7.0, 8.0])?;
            work.fill(&mut z, 1.25)?;
            work.host_call(move || _ = counted.fetch_add(1, Ordering::SeqCst))?;
            let mut sum = work.alloc::<f32>(100)?;
            work.launch(&axpy, Grid::covering(100), (3.0, &y, &mut sum, Len, Len))?;
            Ok(sum)
        })
        .unwrap();
    let mut expected: Vec<f32> = ramp(100).iter().map(|x| x + 1.0).collect();
    expected[3..5].copy_from_slice(&[7.0, 8.0]);
    for round in 1..=5 {
        stream.fill(&mut x, -1.0).unwrap();
        stream.fill(&mut y, -1.0).unwrap();
        stream.fill(&mut z, -1.0).unwrap();
        graph.replay(&mut stream).unwrap().wait().unwrap();
        assert_eq!(stream.read(&y).unwrap(), expected);
        assert_eq!(stream.read(&z).unwrap(), [1.25; 7]);
        let tripled: Vec<f32> = expected.iter().map(|y| 3.0 * y).collect();
        assert_eq!(stream.read(&sum).unwrap(), tripled, "zeroed on every replay");
        assert_eq!(calls.load(Ordering::SeqCst), round);
    }
}

fn chain(stream: &mut Stream, k: &Kernels, order: Order) -> (Graph, Vec<Buffer<f32>>) {
    let mut chains: Vec<_> = (0..8).map(|_| stream.alloc::<f32>(64).unwrap()).collect();
    let options = CaptureOptions::new().order(order);
    let (graph, ()) = stream
        .record_with(options, |work| {
            (0..125).try_for_each(|_| {
                chains.iter_mut().try_for_each(|x| work.launch(&k.inc, Grid::covering(64), (x, Len)))
            })
        })
        .unwrap();
    (graph, chains)
}

/// Edges that were too few would lose increments.
#[test]
fn a_thousand_nodes_in_eight_chains_each_run_once_in_their_order() {
    let Some((device, k)) = working(4) else { return };
    let mut stream = device.stream().unwrap();
    for order in [Order::DataFlow, Order::Sequential] {
        let (mut graph, chains) = chain(&mut stream, &k, order);
        for _ in 0..10 {
            graph.replay(&mut stream).unwrap();
        }
        for x in &chains {
            assert_eq!(stream.read(x).unwrap(), [1250.0; 64]);
        }
    }
}

#[test]
fn replays_on_other_streams_follow_each_other_and_the_work_between() {
    let Some((device, k)) = working(4) else { return };
    let mut streams: Vec<_> = (0..4).map(|_| device.stream().unwrap()).collect();
    let mut x = streams[0].alloc::<f32>(1000).unwrap();
    let record = streams[0].record(|work| work.launch(&k.inc, Grid::covering(1000), (&mut x, Len)));
    let (mut graph, ()) = record.unwrap();
    for round in 0..400 {
        graph.replay(&mut streams[round % 4]).unwrap();
        let other = &mut streams[(round * 7 + 1) % 4];
        other.launch(&k.inc, Grid::covering(1000), (&mut x, Len)).unwrap();
    }
    assert_eq!(streams[3].read(&x).unwrap(), [800.0; 1000]);
}

/// The driver's own way of destroying a graph blocks until its replay ends.
#[test]
fn a_graph_is_dropped_in_flight_without_waiting_and_its_replay_ends() {
    beside_gates(subject::ATTEMPTS, || {
        let Some((device, k)) = working(4) else { return };
        let mut stream = device.stream().unwrap();
        let mut x = stream.alloc::<f32>(1000).unwrap();
        let data = ramp(1000);
        let gate = Gate::close(&mut stream);
        let (mut graph, ()) = stream
            .record(|work| {
                work.write(&mut x, data)?;
                work.launch(&k.inc, Grid::covering(1000), (&mut x, Len))
            })
            .unwrap();
        let ticket = graph.replay(&mut stream).unwrap();
        // With the gate closed, a drop that waited would wait for ever.
        drop(graph);
        assert!(!ticket.is_done());
        gate.open();
        ticket.wait().unwrap();
        assert_eq!(stream.read(&x).unwrap(), ramp(1000).iter().map(|x| x + 1.0).collect::<Vec<_>>());
    });
}

#[test]
fn an_embedded_graph_runs_in_its_place() {
    let Some((device, k)) = working(4) else { return };
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<f32>(10).unwrap();
    let (mut child, ()) = stream.record(|w| w.launch(&k.inc, Grid::covering(10), (&mut x, Len))).unwrap();
    let (mut parent, ()) = stream
        .record(|work| {
            work.fill(&mut x, 5.0)?;
            work.embed(&mut child)?;
            work.embed(&mut child)
        })
        .unwrap();
    parent.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&x).unwrap(), [7.0; 10]);
}

/// A ticket that only a wait could make done would never be for who polls it.
#[test]
fn a_ticket_becomes_done_though_nobody_waits() {
    let Some((device, k)) = working(4) else { return };
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<f32>(10).unwrap();
    let (mut graph, ()) = stream.record(|w| w.launch(&k.inc, Grid::covering(10), (&mut x, Len))).unwrap();
    let ticket = graph.replay(&mut stream).unwrap();
    assert!(eventually(|| ticket.is_done()));
}
