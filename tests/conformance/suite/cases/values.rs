//! Cases VAL-01 to VAL-05: decisions that a recording freezes, and values that must not be stale.

use dacapo::{Error, Pass, Result};

use super::support::*;
use super::zoo;

fn grid() -> Grid {
    Grid::covering(N)
}

/// A scalar that leaks in from a later eager launch, or from a shared table of scalars, shows as a wrong value.
#[test]
fn val_01_a_recorded_scalar_keeps_its_value_whatever_is_launched_later() {
    let Some(device) = device(2) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut s = device.stream().unwrap();
    let (mut b, mut b2) = (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(N).unwrap());
    let mut filled = s.alloc::<u32>(N).unwrap();
    let (mut graph, ()) = s
        .record(|w| {
            w.launch(&k.fill, grid(), (&mut b, 1u32, Len))?;
            w.fill(&mut filled, 1)
        })
        .unwrap();
    for later in [5, 6, 7] {
        s.launch(&k.fill, grid(), (&mut b2, later, Len)).unwrap();
        s.launch(&k.fill, grid(), (&mut b, later, Len)).unwrap();
        s.fill(&mut filled, later).unwrap();
        graph.replay(&mut s).unwrap();
        assert_eq!(s.read(&b).unwrap(), [1; N]);
        assert_eq!(s.read(&filled).unwrap(), [1; N]);
        assert_eq!(s.read(&b2).unwrap(), [later; N]);
    }
}

/// A value in a buffer is read by the replay, not by the recording.
#[test]
fn val_01_a_value_in_a_buffer_is_the_one_written_last() {
    let Some(device) = device(1) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut s = device.stream().unwrap();
    let (mut b, mut value) = (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(N).unwrap());
    s.fill(&mut value, 1).unwrap();
    let (mut graph, ()) = s.record(|w| w.copy(&value, &mut b)).unwrap();
    for written in [7, 9] {
        s.fill(&mut value, written).unwrap();
        graph.replay(&mut s).unwrap();
        assert_eq!(s.read(&b).unwrap(), [written; N]);
    }
    let (mut graph, ()) = s.record(|w| w.launch(&k.add1, grid(), (&value, &mut b, Len, Len))).unwrap();
    s.fill(&mut value, 40).unwrap();
    graph.replay(&mut s).unwrap();
    assert_eq!(s.read(&b).unwrap(), [41; N]);
}

/// A generator seeded by a scalar repeats itself; one seeded by a buffer follows the buffer, and its own state.
#[test]
fn val_01_a_seed_as_scalar_is_frozen_and_a_seed_in_a_buffer_is_not() {
    let expected = |seed: u32| (0..N).map(|at| zoo::noise_at(seed, at)).collect::<Vec<_>>();
    let Some(device) = device(1) else { return };
    let (by_scalar, by_buffer) = (zoo::noise(), zoo::noise_from());
    let (by_scalar, by_buffer) = (by_scalar.load(&device).unwrap(), by_buffer.load(&device).unwrap());
    let inc = zoo::inc::<u32>().load(&device).unwrap();
    let mut s = device.stream().unwrap();
    let (mut a, mut b) = (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(N).unwrap());
    let mut seed = s.alloc::<u32>(1).unwrap();
    let (mut graph, ()) = s
        .record(|w| {
            w.launch(&by_scalar, grid(), (&mut a, 3u32, Len))?;
            w.launch(&by_buffer, grid(), (&mut b, &seed, Len, Len))?;
            w.launch(&inc, grid(), (&mut seed, Len))
        })
        .unwrap();
    s.write(&mut seed, &[100]).unwrap();
    for replay in 0..3 {
        graph.replay(&mut s).unwrap();
        assert_eq!(s.read(&a).unwrap(), expected(3));
        assert_eq!(s.read(&b).unwrap(), expected(100 + replay));
    }
    s.write(&mut seed, &[900]).unwrap();
    graph.replay(&mut s).unwrap();
    assert_eq!(s.read(&a).unwrap(), expected(3));
    assert_eq!(s.read(&b).unwrap(), expected(900));
}

/// A recording that executes, or a warm-up that does not, leaves in-place state off by one.
#[test]
fn val_02_warm_up_executes_recording_does_not_and_each_replay_does_once() {
    let Some(device) = device(2) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut reader = device.stream().unwrap();
    let mut s = device.stream().unwrap().prepare().unwrap();
    let mut c = s.alloc::<u32>(N).unwrap();
    s.launch(&k.inc, grid(), (&mut c, Len)).unwrap();
    s.launch(&k.inc, grid(), (&mut c, Len)).unwrap();
    let mut s = s.begin().unwrap();
    s.launch(&k.inc, grid(), (&mut c, Len)).unwrap();
    assert_eq!(reader.read(&c).unwrap(), [2; N], "while it records");
    let (mut graph, mut s) = s.end().unwrap();
    assert_eq!(reader.read(&c).unwrap(), [2; N], "after the end");
    for _ in 0..3 {
        graph.replay(&mut s).unwrap();
    }
    assert_eq!(reader.read(&c).unwrap(), [5; N], "after three replays");
}

/// Reading a replay's result through the handle of the warm-up gives the warm-up's result for ever.
#[test]
fn val_02_the_recorded_handle_gets_the_replays_output_and_the_warm_ups_does_not() {
    let Some(device) = device(1) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    s.fill(&mut x, 10).unwrap();
    let mut warm = None;
    let (mut graph, recorded) = s
        .capture(|w| {
            let mut y = w.alloc::<u32>(N)?;
            w.launch(&k.add1, grid(), (&x, &mut y, Len, Len))?;
            if w.pass() == Pass::WarmUp {
                warm = Some(y);
                return Ok(None);
            }
            Ok(Some(y))
        })
        .unwrap();
    let (warm, recorded) = (warm.unwrap(), recorded.unwrap());
    assert_eq!(s.read(&warm).unwrap(), [11; N]);
    assert!(matches!(refused(s.read(&recorded)), Error::NotReplayed));
    s.fill(&mut x, 20).unwrap();
    graph.replay(&mut s).unwrap();
    assert_eq!(s.read(&recorded).unwrap(), [21; N]);
    assert_eq!(s.read(&warm).unwrap(), [11; N]);
}

/// What the step of VAL-03 did in one pass.
#[derive(Debug, Default, PartialEq)]
struct Path {
    kernels: Vec<&'static str>,
    buffers: usize,
}

/// Works in place when nobody else holds `x`, as operators do that look at their operand's uniqueness.
fn increment(
    work: &mut impl Enqueue<Subject>,
    k: &Kernels<u32>,
    x: std::sync::Arc<Buffer<u32>>,
    path: &mut Path,
) -> Result<std::sync::Arc<Buffer<u32>>> {
    match std::sync::Arc::try_unwrap(x) {
        Ok(mut own) => {
            path.kernels.push("inc");
            work.launch(&k.inc, grid(), (&mut own, Len))?;
            Ok(own.into())
        }
        Err(shared) => {
            path.kernels.push("add1");
            path.buffers += 1;
            let mut fresh = work.alloc::<u32>(N)?;
            work.launch(&k.add1, grid(), (&*shared, &mut fresh, Len, Len))?;
            Ok(fresh.into())
        }
    }
}

/// A warm-up that retains operands makes them look shared, so that the in-place variant is met while recording first.
#[test]
fn val_03_warm_up_and_recording_take_the_same_path() {
    let Some(device) = device(1) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut s = device.stream().unwrap();
    let (mut warm_up, mut recording) = (Path::default(), Path::default());
    let kept = std::sync::Arc::new(s.alloc::<u32>(N).unwrap());
    let loads = subject::calls_of(&device, dacapo::Call::Load);
    let (mut graph, out) = s
        .capture(|w| {
            let path = if w.pass() == Pass::WarmUp { &mut warm_up } else { &mut recording };
            let mut own = w.alloc::<u32>(N)?;
            w.fill(&mut own, 5)?;
            path.buffers += 1;
            let own = increment(w, &k, own.into(), path)?;
            let own = increment(w, &k, own, path)?;
            let from_kept = increment(w, &k, kept.clone(), path)?;
            let mut out = w.alloc::<u32>(N)?;
            path.buffers += 1;
            w.launch(&k.sum, grid(), (&*own, &*from_kept, &mut out, Len, Len, Len))?;
            path.kernels.push("sum");
            Ok(out)
        })
        .unwrap();
    assert_eq!(warm_up, recording);
    assert_eq!(warm_up.kernels, ["inc", "inc", "add1", "sum"]);
    assert_eq!(
        subject::calls_of(&device, dacapo::Call::Load),
        loads,
        "nothing is compiled for the recording"
    );
    let names: Vec<_> = (0..graph.nodes()).map(|node| graph.node(node).unwrap().name).collect();
    assert_eq!(names, ["fill", "inc", "inc", "add1", "sum"]);
    graph.replay(&mut s).unwrap();
    assert_eq!(s.read(&out).unwrap(), [8; N]);
}

/// A graph over eight values, for the ways to refresh them.
fn over_eight(s: &mut Stream, k: &Kernels<u32>) -> (Buffer<u32>, Buffer<u32>, Graph) {
    let (x, mut y) = (s.alloc::<u32>(8).unwrap(), s.alloc::<u32>(8).unwrap());
    let (graph, ()) = s.record(|w| w.launch(&k.add1, Grid::covering(8), (&x, &mut y, Len, Len))).unwrap();
    (x, y, graph)
}

/// Input that is cached at the recording, or read from the host's memory at the replay, is not what was written.
#[test]
fn val_05_each_replay_sees_what_was_written_last_and_not_what_the_host_did_after() {
    let Some(device) = device(1) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut s = device.stream().unwrap();
    let (mut x, y, mut graph) = over_eight(&mut s, &k);
    for round in 0..3u32 {
        let mut input: Vec<u32> = (0..8).map(|at| round * 10 + at).collect();
        let expected: Vec<u32> = input.iter().map(|x| x + 1).collect();
        s.write(&mut x, &input).unwrap();
        input.fill(9999);
        graph.replay(&mut s).unwrap();
        assert_eq!(s.read(&y).unwrap(), expected);
    }
}

/// A write of the wrong length that changes what it can leaves a stale tail, or reaches into a neighbour.
#[test]
fn val_05_a_write_of_another_length_is_an_error_that_names_both() {
    let Some(device) = device(1) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut s = device.stream().unwrap();
    let (mut x, y, mut graph) = over_eight(&mut s, &k);
    for wrong in [4, 16] {
        s.write(&mut x, &[1; 8]).unwrap();
        let error = refused(s.write(&mut x, vec![7; wrong]));
        let (source_len, target_len) = match error {
            Error::LengthMismatch { source_len, target_len, .. } => (source_len, target_len),
            other => panic!("{other}"),
        };
        assert_eq!((source_len, target_len), (wrong, 8));
        let message = error.to_string();
        assert!(message.contains(&wrong.to_string()) && message.contains('8'), "{message}");
        // What was to be refreshed and was not is not replayed as if it had been.
        graph.replay(&mut s).unwrap();
        assert_tainted(&mut s, &y, &error);
        s.write(&mut x, &[2; 8]).unwrap();
        graph.replay(&mut s).unwrap();
        assert_eq!(s.read(&y).unwrap(), [3; 8]);
    }
}

/// The first half may be refreshed by itself, by saying so.
#[test]
fn val_05_a_write_to_a_slice_changes_exactly_its_elements() {
    let Some(device) = device(1) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut s = device.stream().unwrap();
    let (mut x, y, mut graph) = over_eight(&mut s, &k);
    s.write(&mut x, &[1; 8]).unwrap();
    s.write(x.slice_mut(..4).unwrap(), &[7; 4]).unwrap();
    graph.replay(&mut s).unwrap();
    assert_eq!(s.read(&y).unwrap(), [8, 8, 8, 8, 2, 2, 2, 2]);
}

/// A graph that finds its buffers by the variable, or keeps an address that the old buffer gave up.
#[test]
fn val_05_rebinding_the_variable_leaves_the_graph_with_the_captured_buffer() {
    let Some(device) = device(1) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut s = device.stream().unwrap();
    let (mut x, y, mut graph) = over_eight(&mut s, &k);
    s.write(&mut x, &[1; 8]).unwrap();
    x = s.alloc::<u32>(8).unwrap();
    s.write(&mut x, &[500; 8]).unwrap();
    let others = Sentinels::of(&mut s, 8, 8, 77u32);
    graph.replay(&mut s).unwrap();
    assert_eq!(s.read(&y).unwrap(), [2; 8]);
    assert_eq!(s.read(&x).unwrap(), [500; 8]);
    assert!(others.are_intact(&mut s));
}
