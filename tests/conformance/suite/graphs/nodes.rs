//! What a graph is made of, and what its replays do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dacapo::Order;

use super::support::*;
use super::zoo;

/// A step that recorded nothing is a step with a bug, or a loop without iterations: neither is an error.
#[test]
fn an_empty_graph_replays_as_a_no_op() {
    for options in [CaptureOptions::new(), CaptureOptions::new().order(Order::Sequential)] {
        let Some((device, _)) = working(1) else { return };
        let mut s = device.stream().unwrap();
        let mut x = s.alloc::<f32>(N).unwrap();
        s.fill(&mut x, 2.0).unwrap();
        let (mut graph, ()) = s.record_with(options, |_| Ok(())).unwrap();
        assert_eq!((graph.nodes(), graph.edges(), graph.arena_bytes()), (0, 0, 0));
        assert!(graph.node(0).is_none());
        assert!(graph.to_dot().starts_with("digraph"));
        let ticket = graph.replay(&mut s).unwrap();
        ticket.wait().unwrap();
        assert!(ticket.is_done());
        assert!(all(&s.read(&x).unwrap(), 2.0));
    }
}

/// Recursion over nodes, or a cost that grows with their square, shows here.
#[test]
fn a_graph_of_twenty_thousand_nodes_runs_them_all() {
    const NODES: usize = 20_000;
    let Some((device, k)) = working(2) else { return };
    let mut s = device.stream().unwrap();
    let mut counters: Vec<Buffer<f32>> = (0..4).map(|_| s.alloc(4).unwrap()).collect();
    let mut record = |options: CaptureOptions| {
        let step = |work: &mut Work<'_>| {
            for n in 0..NODES {
                work.launch(&k.inc, Grid::covering(4), (&mut counters[n % 4], Len))?;
            }
            Ok(())
        };
        s.record_with(options, step).unwrap().0
    };
    let mut graph = record(CaptureOptions::new());
    let mut sequential = record(CaptureOptions::new().order(Order::Sequential));
    assert_eq!((graph.nodes(), graph.edges()), (NODES, NODES - 4));
    assert_eq!((sequential.nodes(), sequential.edges()), (NODES, NODES - 1));
    assert_eq!(graph.node(NODES - 1).unwrap().after, [NODES - 5]);
    graph.replay(&mut s).unwrap();
    sequential.replay(&mut s).unwrap();
    graph.replay(&mut s).unwrap();
    for counter in &counters {
        assert!(all(&s.read(counter).unwrap(), 3.0 * (NODES / 4) as f32));
    }
}

/// A graph that cannot be looked into hides that it was recorded empty, or twice.
#[test]
fn a_graph_shows_its_nodes() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(N).unwrap();
    let mut y = s.alloc::<f32>(N).unwrap();
    let (graph, ()) = s
        .record(|work| {
            work.write(&mut x, &[1.0; N])?;
            work.launch(&k.add1, Grid::covering(N), (&x, &mut y, Len, Len))?;
            work.launch(&k.inc, Grid::covering(N), (&mut y, Len))?;
            work.copy(y.slice(..4)?, x.slice_mut(..4)?)?;
            work.fill(x.slice_mut(4..6)?, 0.0)?;
            work.host_call(|| {})
        })
        .unwrap();
    let nodes: Vec<_> = (0..graph.nodes()).map(|n| graph.node(n).unwrap()).collect();
    let shown: Vec<_> = nodes.iter().map(|node| (node.name.as_str(), node.bytes)).collect();
    let expected = [
        ("write", (0, 256)),
        ("add1", (256, 256)),
        ("inc", (256, 256)),
        ("copy", (16, 16)),
        ("fill", (0, 8)),
        ("host call", (0, 0)),
    ];
    assert_eq!(shown, expected);
    assert_eq!(nodes.iter().map(|node| node.after.len()).sum::<usize>(), graph.edges());
    assert!(graph.node(graph.nodes()).is_none());
}

/// A kernel's name is the user's text, and must not end the string that it is printed in.
#[test]
fn the_dot_listing_names_every_node_and_every_edge() {
    let Some((device, _)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(N).unwrap();
    let odd = zoo::named::<f32>("say \"hi\\\"").load(&device).unwrap();
    let (graph, ()) = s
        .record(|work| {
            work.fill(&mut x, 1.0)?;
            work.launch(&odd, Grid::covering(N), (&mut x, Len))
        })
        .unwrap();
    let dot = graph.to_dot();
    assert!(dot.starts_with("digraph") && dot.trim_end().ends_with('}'));
    assert!(dot.contains("0: fill"));
    assert!(dot.contains(r#"1: say \"hi\\\""#), "{dot}");
    assert!(dot.contains("n0 -> n1;"));
    assert_eq!(dot.matches("->").count(), graph.edges());
    assert_eq!(dot.matches("label").count(), graph.nodes());
}

/// Arguments are those of the recording: a graph that looked at the caller's variables would be a dangling pointer.
#[test]
fn scalars_and_host_bytes_are_those_of_the_recording() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(N).unwrap();
    let mut y = s.alloc::<f32>(N).unwrap();
    let mut data = vec![5.0; N];
    let mut value = 6.0;
    let (mut graph, ()) = s
        .record(|work| {
            work.write(&mut x, &data)?;
            work.launch(&k.fill, Grid::covering(N), (&mut y, value, Len))
        })
        .unwrap();
    data.fill(0.0);
    value += 1.0;
    for _ in 0..2 {
        s.fill(&mut x, value).unwrap();
        s.fill(&mut y, value).unwrap();
        graph.replay(&mut s).unwrap();
        assert!(all(&s.read(&x).unwrap(), 5.0));
        assert!(all(&s.read(&y).unwrap(), 6.0));
    }
    drop(data);
}

/// A callback in a graph runs at its place, once a replay.
#[test]
fn a_callback_runs_once_a_replay_between_what_is_before_and_after_it() {
    let Some((device, _)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(N).unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let (first, second) = (calls.clone(), calls.clone());
    let (mut graph, ()) = s
        .record(|work| {
            work.host_call(move || assert_eq!(first.fetch_add(1, Ordering::Relaxed) % 2, 0))?;
            work.fill(&mut x, 1.0)?;
            work.host_call(move || assert_eq!(second.fetch_add(1, Ordering::Relaxed) % 2, 1))
        })
        .unwrap();
    assert_eq!(after(&graph), [vec![], vec![0], vec![1]]);
    assert_eq!(calls.load(Ordering::Relaxed), 0, "recording calls nothing");
    let gate = Gate::close(&mut s);
    for _ in 0..3 {
        graph.replay(&mut s).unwrap();
    }
    assert_eq!(calls.load(Ordering::Relaxed), 0, "enqueueing calls nothing");
    gate.open();
    s.sync().unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 6);
    s.sync().unwrap();
    drop(graph);
    assert!(eventually(|| Arc::strong_count(&calls) == 1), "the callbacks go with their graph");
}

/// What the recording refused, the graph must not contain in part.
#[test]
fn operations_on_nothing_are_no_nodes() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(N).unwrap();
    let (graph, ()) = s
        .record(|work| {
            let mut empty = work.alloc::<f32>(0)?;
            work.fill(&mut empty, 1.0)?;
            work.write(&mut empty, &[])?;
            work.copy(x.slice(..0)?, &mut empty)?;
            work.launch(&k.inc, Grid::covering(0), (&mut x, Len))
        })
        .unwrap();
    assert_eq!(graph.nodes(), 0);
}
