//! Tokens of state: what shares one keeps its order, on a device that runs one operation at a time when told to, and
//! nothing else follows from it.

mod support;

use std::sync::Arc;

use dacapo::host::Stepper;
use dacapo::prelude::*;
use dacapo::{CaptureOptions, Error, Order, State};

use crate::support::{all, stepped, working};

const N: usize = 64;

/// A buffer of its own for one stream, already on the device.
fn ready(stream: &mut Stream, stepper: &Stepper) -> Buffer<f32> {
    let mut buffer = stream.alloc_scratch(N).unwrap();
    stream.fill(&mut buffer, 0.0).unwrap();
    stepper.run_all();
    buffer
}

fn grid() -> Grid {
    Grid::covering(N)
}

/// Two launches on one handle's workspace would overwrite each other's intermediate results.
#[test]
fn launches_that_share_a_token_wait_for_each_other_on_two_streams() {
    let (device, stepper, k) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let (mut x, mut y) = (ready(&mut a, &stepper), ready(&mut b, &stepper));
    let inc = k.inc.with_state(&State::new(&device));
    a.launch(&inc, grid(), (&mut x,)).unwrap();
    b.launch(&inc, grid(), (&mut y,)).unwrap();
    a.launch(&inc, grid(), (&mut x,)).unwrap();
    assert!(!stepper.step(b.id()), "the launch before has not run");
    assert!(stepper.step(a.id()));
    assert!(!stepper.step(a.id()), "nor has the other stream's");
    assert!(stepper.step(b.id()));
    assert!(stepper.step(a.id()));
    assert!(all(&a.read(&x).unwrap(), 2.0));
}

/// A token that ordered strangers would make one stream of them all.
#[test]
fn other_tokens_and_handles_without_one_wait_for_nothing() {
    let (device, stepper, k) = stepped(3);
    let mut s: Vec<_> = (0..3).map(|_| device.stream().unwrap()).collect();
    let mut x: Vec<_> = s.iter_mut().map(|stream| ready(stream, &stepper)).collect();
    let kernels =
        [k.inc.with_state(&State::new(&device)), k.inc.with_state(&State::new(&device)), k.inc.clone()];
    for ((stream, x), kernel) in s.iter_mut().zip(&mut x).zip(&kernels) {
        stream.launch(kernel, grid(), (x,)).unwrap();
    }
    for stream in s.iter().rev() {
        assert!(stepper.step(stream.id()));
    }
}

/// Nodes without an edge run side by side.
#[test]
fn nodes_of_a_graph_have_an_edge_for_each_token_that_they_share() {
    let (device, k) = working(1);
    let mut stream = device.stream().unwrap();
    let mut x: Vec<Buffer<f32>> = (0..4).map(|_| stream.alloc(N).unwrap()).collect();
    let (one, two) = (State::new(&device), State::new(&device));
    let handles = [
        k.inc.with_state(&one),
        k.inc.with_state(&two),
        // A clone of a token is the token.
        k.inc.with_state(&one.clone()).with_state(&two),
        k.inc.clone(),
    ];
    let (mut graph, ()) = stream
        .record(|work| x.iter_mut().zip(&handles).try_for_each(|(x, inc)| work.launch(inc, grid(), (x,))))
        .unwrap();
    drop((one, two, handles));
    let after: Vec<_> = (0..4).map(|node| graph.node(node).unwrap().after).collect();
    assert_eq!(after, [vec![], vec![], vec![0, 1], vec![]]);
    let bytes = N * size_of::<f32>();
    assert_eq!(graph.node(2).unwrap().bytes, (bytes, bytes), "a token has none");
    for _ in 0..3 {
        graph.replay(&mut stream).unwrap();
    }
    assert!(x.iter().all(|x| all(&stream.read(x).unwrap(), 3.0)));
}

/// Each graph is in order with itself; only the link between them orders the two.
#[test]
fn graphs_that_share_a_token_wait_for_each_other_and_for_launches() {
    let (device, stepper, k) = stepped(3);
    let mut s: Vec<_> = (0..3).map(|_| device.stream().unwrap()).collect();
    let mut x: Vec<_> = s.iter_mut().map(|stream| ready(stream, &stepper)).collect();
    let inc = k.inc.with_state(&State::new(&device));
    let mut graphs: Vec<Graph> =
        (0..2).map(|n| s[n].record(|work| work.launch(&inc, grid(), (&mut x[n],))).unwrap().0).collect();
    graphs[0].replay(&mut s[0]).unwrap();
    s[2].launch(&inc, grid(), (&mut x[2],)).unwrap();
    graphs[1].replay(&mut s[1]).unwrap();
    graphs[0].replay(&mut s[0]).unwrap();
    // The one order that is possible, and what does not come next cannot run.
    for (next, others) in [(0, [1, 2]), (2, [0, 1]), (1, [0, 2])] {
        assert!(others.into_iter().all(|other| !stepper.step(s[other].id())));
        assert!(stepper.step(s[next].id()));
    }
    assert!(stepper.step(s[0].id()));
    drop(graphs);
    s[1].launch(&inc, grid(), (&mut x[1],)).unwrap();
    assert!(stepper.step(s[1].id()), "what is over and done with holds nobody up");
}

/// A child's nodes came without what orders them.
#[test]
fn an_embedded_graph_brings_its_tokens_along() {
    let (device, k) = working(1);
    let mut stream = device.stream().unwrap();
    let (mut x, mut y) = (stream.alloc::<f32>(N).unwrap(), stream.alloc::<f32>(N).unwrap());
    let inc = k.inc.with_state(&State::new(&device));
    let (mut child, ()) = stream.record(|work| work.launch(&inc, grid(), (&mut x,))).unwrap();
    let (graph, ()) = stream
        .record(|work| {
            work.embed(&mut child)?;
            work.launch(&inc, grid(), (&mut y,))
        })
        .unwrap();
    assert_eq!(graph.node(1).unwrap().after, [0]);
}

/// Nothing writes a token in full: one launch that failed would fail whoever uses it for good.
#[test]
fn a_failed_or_skipped_launch_leaves_the_token_as_it_was() {
    let (device, k) = working(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let state = State::new(&device);
    let (broken, add1) = (k.broken.with_state(&state), k.add1.with_state(&state));
    let inc = k.inc.with_state(&state);
    let mut x = a.alloc::<f32>(N).unwrap();
    let mut y = a.alloc::<f32>(N).unwrap();
    let mut z = b.alloc::<f32>(N).unwrap();
    a.launch(&broken, grid(), (&mut x,)).unwrap();
    a.launch(&add1, grid(), (&x, &mut y)).unwrap();
    b.launch(&inc, grid(), (&mut z,)).unwrap();
    assert!(all(&b.read(&z).unwrap(), 1.0));
    assert!(matches!(a.read(&y), Err(Error::Tainted { .. })), "the failure is where it belongs");
    let (mut graph, ()) = b.record(|work| work.launch(&inc, grid(), (&mut z,))).unwrap();
    graph.replay(&mut b).unwrap().wait().unwrap();
    assert!(all(&b.read(&z).unwrap(), 2.0));
}

/// Order there does not order here.
#[test]
fn a_token_of_another_device_is_refused_and_named() {
    let (device, k) = working(1);
    let other = Device::host().unwrap();
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<f32>(N).unwrap();
    let inc = k.inc.with_state(&State::new(&other));
    let refused = stream.launch(&inc, grid(), (&mut x,));
    assert!(matches!(refused, Err(Error::WrongDevice { object: "state", .. })), "{refused:?}");
}

/// The order of recording is more than any token asks for.
#[test]
fn tokens_change_nothing_in_a_sequential_graph() {
    let (device, k) = working(1);
    let mut stream = device.stream().unwrap();
    let mut x: Vec<Buffer<f32>> = (0..3).map(|_| stream.alloc(N).unwrap()).collect();
    let inc = k.inc.with_state(&State::new(&device));
    let options = CaptureOptions::new().order(Order::Sequential);
    let (mut graph, ()) = stream
        .record_with(options, |work| x.iter_mut().try_for_each(|x| work.launch(&inc, grid(), (x,))))
        .unwrap();
    assert_eq!(graph.edges(), 2);
    graph.replay(&mut stream).unwrap().wait().unwrap();
    assert!(x.iter().all(|x| all(&stream.read(x).unwrap(), 1.0)));
}

/// What a token kept alive would be a whole device, with all that waits in its queues.
#[test]
fn a_token_keeps_no_device_alive() {
    let (device, _, k) = stepped(1);
    let state = State::new(&device);
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<f32>(N).unwrap();
    stream.launch(&k.inc.with_state(&state), grid(), (&mut x,)).unwrap();
    let queued = Arc::new(());
    let seen = Arc::downgrade(&queued);
    // On a stepped device it never runs.
    stream.host_call(move || _ = &queued).unwrap();
    assert!(seen.upgrade().is_some());
    drop((device, k, stream, x));
    assert!(seen.upgrade().is_none(), "the queue is gone, with the device");
    drop(state);
}
