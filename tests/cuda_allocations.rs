//! Launches and replays on CUDA allocate nothing once they are warm.

#[path = "../benches/support/counting.rs"]
mod counting;
mod runner;
#[path = "cuda/support.rs"]
mod support;

use counting::{Allocations, Counting};
use dacapo::prelude::*;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `round` until it allocates nothing, and then more often: lists grow when they are first needed.
fn never_allocates_once_warm(what: &str, mut round: impl FnMut()) {
    never_allocates_once_counted(what, || {
        let before = Allocations::now();
        round();
        before.since()
    });
}

/// As [`never_allocates_once_warm`], for rounds that count themselves.
fn never_allocates_once_counted(what: &str, mut counted: impl FnMut() -> Allocations) {
    let quiet = Allocations { thread: 0, process: 0 };
    assert!((0..200).any(|_| counted() == quiet), "{what}: every round of the warm-up allocates");
    for n in 0..100 {
        assert_eq!(counted(), quiet, "{what}, round {n}");
    }
    println!("{what}: no allocation");
}

fn main() {
    if runner::is_asked_for(["nothing_allocates_once_it_is_warm"]) {
        return;
    }
    let (device, k) = match support::device() {
        Some(found) => found,
        None => return,
    };
    let mut stream = device.stream().unwrap();
    let mut other = device.stream().unwrap();
    let mut x = stream.alloc::<f32>(1000).unwrap();
    let grid = Grid::covering(1000);
    never_allocates_once_warm("launches", || {
        (0..100).for_each(|_| stream.launch(&k.inc, grid, (&mut x, Len)).unwrap());
        stream.sync().unwrap();
    });
    never_allocates_once_warm("launches on two streams in turn", || {
        for _ in 0..50 {
            stream.launch(&k.inc, grid, (&mut x, Len)).unwrap();
            other.launch(&k.inc, grid, (&mut x, Len)).unwrap();
        }
        stream.sync().unwrap();
        other.sync().unwrap();
    });
    let data = vec![1.0; 1000];
    let mut into = vec![0.0; 1000];
    never_allocates_once_warm("writes, fills, copies and reads", || {
        for _ in 0..20 {
            stream.write(&mut x, &data).unwrap();
            stream.fill(&mut x, 2.0).unwrap();
            stream.read_into(&x, &mut into).unwrap();
        }
    });
    let mut idle = Some(stream);
    never_allocates_once_counted("recorded operations", || {
        let mut recording = idle.take().unwrap().prepare().unwrap().begin().unwrap();
        let before = Allocations::now();
        for _ in 0..100 {
            recording.launch(&k.inc, grid, (&mut x, Len)).unwrap();
            recording.fill(&mut x, 2.0).unwrap();
        }
        // Of this thread: another one gives the graph of the round before back meanwhile.
        let allocations = Allocations { process: 0, ..before.since() };
        let (graph, stream) = recording.end().unwrap();
        drop(graph);
        idle = Some(stream);
        allocations
    });
    let mut stream = idle.unwrap();
    let (mut graph, ()) =
        stream.record(|work| (0..150).try_for_each(|_| work.launch(&k.inc, grid, (&mut x, Len)))).unwrap();
    never_allocates_once_warm("replays", || {
        (0..20).for_each(|_| drop(graph.replay(&mut stream).unwrap()));
        stream.sync().unwrap();
    });
    drop((graph, x, k, stream, other, device));
    assert!(support::eventually(|| support::threads() == 0), "the device's threads outlive it");
}
