//! What is given back makes nobody wait: a driver may wait for all work of the device to take memory or code back, and let
//! nobody in meanwhile.

use super::support::*;
use super::zoo;
use dacapo::AllocationMode;

/// Whether ordinary work of a stream comes to its end.
fn works(stream: &mut Stream, k: &Kernels) -> bool {
    let mut x = filled(stream, 3.0);
    stream.launch(&k.inc, grid(), (&mut x, Len)).unwrap();
    all(&stream.read(&x).unwrap(), 4.0)
}

#[test]
fn pages_go_back_while_another_stream_is_held_up() {
    let Some((device, k)) = working(2) else { return };
    let (mut busy, mut s) = (device.stream().unwrap(), device.stream().unwrap());
    assert!(works(&mut s, &k));
    let kept = filled(&mut busy, 1.0);
    busy.sync().unwrap();
    let held = device.memory_usage().held;
    let gate = Gate::close(&mut busy);
    for round in 0..20 {
        let large = s.allocating(AllocationMode::Dedicated, |work| work.alloc::<f32>(LARGE)).unwrap();
        assert!(all(&s.read(&large).unwrap(), 0.0));
        drop(large);
        assert!(eventually(|| device.memory_usage().held == held), "round {round}");
        assert!(works(&mut s, &k), "round {round}");
    }
    gate.open();
    assert!(all(&busy.read(&kept).unwrap(), 1.0));
}

#[test]
fn pinned_memory_and_graphs_go_while_another_stream_is_held_up() {
    beside_gates(subject::ATTEMPTS, || {
        let Some((device, k)) = working(2) else { return };
        let (mut busy, mut s) = (device.stream().unwrap(), device.stream().unwrap());
        let mut y = s.alloc::<f32>(LEN).unwrap();
        busy.sync().unwrap();
        let gate = Gate::close(&mut busy);
        for round in 0..20u16 {
            let data = vec![f32::from(round); LEN];
            let (mut graph, ()) = s
                .record(|w| {
                    // The graph owns these bytes, wherever it keeps them.
                    w.write(&mut y, &data)?;
                    w.launch(&k.inc, grid(), (&mut y, Len))
                })
                .unwrap();
            graph.replay(&mut s).unwrap();
            assert!(all(&s.read(&y).unwrap(), f32::from(round) + 1.0), "round {round}");
            drop(graph);
            s.memory_cleanup().unwrap();
            assert_eq!(device.memory_report().staging.held, 0);
            assert!(works(&mut s, &k), "round {round}");
        }
        gate.open();
        busy.sync().unwrap();
    });
}

/// Whether a replay on one stream, and ordinary work, come to their end.
fn replays(stream: &mut Stream, graph: &mut Graph, k: &Kernels) -> bool {
    graph.replay(stream).unwrap();
    works(stream, k)
}

/// Lets what `make` makes go, just before a stream is held up, round after round: nobody else may wait meanwhile.
fn go_just_before_a_gate<T>(device: &Device, k: &Kernels, make: impl Fn() -> T) {
    let (mut busy, mut s) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = s.alloc::<f32>(LEN).unwrap();
    let (mut graph, ()) = s.record(|w| w.launch(&k.inc, grid(), (&mut x, Len))).unwrap();
    assert!(replays(&mut s, &mut graph, k));
    for round in 0..5 {
        let gone = make();
        busy.sync().unwrap();
        drop(gone);
        let gate = Gate::close(&mut busy);
        (0..50).for_each(|_| assert!(replays(&mut s, &mut graph, k), "round {round}"));
        gate.open();
    }
    busy.sync().unwrap();
}

/// Code that is unloaded as soon as nothing launches it meets whatever is enqueued next, and stalls every stream until that
/// has run.
#[test]
fn kernels_go_just_before_a_stream_is_held_up() {
    let Some((device, k)) = working(2) else { return };
    let load = |_| zoo::add1::<f32>().load(&device).unwrap();
    go_just_before_a_gate(&device, &k, || (0..10).map(load).collect::<Vec<_>>());
}

/// Devices of one program may share what the driver locks: the end of one is no reason for the other to wait.
#[test]
fn devices_go_just_before_a_stream_of_another_one_is_held_up() {
    let Some((device, k)) = working(2) else { return };
    let open = |_| {
        let (other, k) = working(2).unwrap();
        let mut stream = other.stream().unwrap();
        assert!(works(&mut stream, &k));
        (stream, k, other)
    };
    go_just_before_a_gate(&device, &k, || (0..3).map(open).collect::<Vec<_>>());
}
