//! What is done while a window is open, and what becomes of the window.

use std::time::Duration;

use dacapo::prelude::*;
use dacapo::{AnyStream, Error, GridLimit};

use crate::support::{Gate, block_on, eventually, load, ramp, written};

/// An allocator that asks a stream which captures whether it is done with some bytes spoils the capture, or fails itself.
#[test]
fn win_03_bytes_last_used_by_a_stream_that_records_are_handed_out_without_asking_it() {
    let (device, k) = crate::device!();
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let grid = Grid::covering(1 << 20);
    let mut kept = b.alloc::<f32>(1 << 20).unwrap();
    for _ in 0..20 {
        let mut x = a.alloc::<f32>(1 << 20).unwrap();
        let gate = Gate::close(&mut b);
        b.launch(&k.inc, grid, (&mut x, Len)).unwrap();
        let mut recording = b.prepare().unwrap().begin().unwrap();
        drop(x);
        let mut fresh = a.alloc::<f32>(1 << 20).unwrap();
        a.launch(&k.inc, grid, (&mut fresh, Len)).unwrap();
        let read = a.read_async(&fresh).unwrap();
        recording.launch(&k.inc, grid, (&mut kept, Len)).unwrap();
        gate.open();
        assert!(block_on(read).unwrap().iter().all(|x| *x == 1.0), "not the bytes that are still in use");
        let (mut graph, ended) = recording.end().unwrap();
        b = ended;
        graph.replay(&mut b).unwrap();
        b.sync().unwrap();
    }
    assert!(b.read(&kept).unwrap().iter().all(|x| *x == 20.0));
    drop(kept);
    assert!(eventually(|| device.memory_usage().in_use == 0));
}

/// A hidden wait kills a driver's capture, far from its cause: here one is refused up front, and others wait as they like.
#[test]
fn win_04_e32_a_wait_in_the_window_is_refused_and_one_beside_it_is_not() {
    let (device, k) = crate::device!();
    let (mut stream, mut other) = (AnyStream::from(device.stream().unwrap()), device.stream().unwrap());
    let mut x = written(&mut other, &ramp(1000));
    let pending = other.read_async(&x).unwrap();
    stream.prepare().unwrap();
    stream.begin().unwrap();
    let grid = Grid::covering(1000);
    stream.launch(&k.inc, grid, (&mut x, Len)).unwrap();
    let refused = [
        stream.read(&x).err(),
        stream.read_timeout(&x, Duration::ZERO).err(),
        stream.sync().err(),
        stream.read_async(&x).err(),
        stream.profile(|_| Ok(())).err(),
    ];
    for error in refused {
        assert!(matches!(error, Some(Error::WrongPhase { .. })), "{error:?}");
    }
    assert_eq!(block_on(pending).unwrap(), ramp(1000));
    assert_eq!(other.read(&x).unwrap(), ramp(1000));
    let mut y = other.alloc::<f32>(1000).unwrap();
    other.profile(|work| work.launch(&k.inc, grid, (&mut y, Len))).unwrap();
    other.sync().unwrap();
    stream.launch(&k.inc, grid, (&mut x, Len)).unwrap();
    let mut graph = stream.end().unwrap();
    assert_eq!(graph.nodes(), 2);
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&x).unwrap()[0], 3.0);
}

/// A refused operation whose result nobody looked at leaves a graph that looks valid and misses a step.
#[test]
fn win_05_a_refused_operation_dooms_the_window_although_nobody_looked_at_its_result() {
    let (device, k) = crate::device!();
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &ramp(1000));
    let grid = Grid::covering(1000);
    let mut recording = stream.prepare().unwrap().begin().unwrap();
    recording.launch(&k.inc, grid, (&mut x, Len)).unwrap();
    let _ = recording.launch(&k.inc, Grid::blocks((1, 1, 70_000)), (&mut x, Len));
    let _ = recording.launch(&k.inc, grid, (&mut x, Len));
    let (mut stream, error) = recording.end().unwrap_err().into_parts();
    assert!(matches!(error, Error::Limit { requested: 70_000, .. }), "the first failure: {error}");
    assert_eq!(stream.read(&x).unwrap(), ramp(1000), "nothing ran");
    let (mut graph, ()) = stream.record(|work| work.launch(&k.inc, grid, (&mut x, Len))).unwrap();
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&x).unwrap()[0], 2.0);
}

/// One backend records a host write, another refuses it lazily and fails `end`. Here it has one meaning.
#[test]
fn win_05_e33_a_write_in_the_window_is_recorded_with_its_bytes() {
    let (device, _) = crate::device!();
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &ramp(1000));
    let mut bytes = vec![7.0f32; 1000];
    let (mut graph, ()) = stream.record(|work| work.write(&mut x, &bytes)).unwrap();
    bytes.fill(8.0);
    assert_eq!(stream.read(&x).unwrap(), ramp(1000));
    for _ in 0..2 {
        graph.replay(&mut stream).unwrap();
        assert_eq!(stream.read(&x).unwrap(), [7.0; 1000]);
        stream.fill(&mut x, 0.0).unwrap();
    }
}

/// Compiling and loading on first use waits and allocates, which kills a driver's capture, in an operation that works everywhere
/// else.
#[test]
fn win_06_a_kernel_is_compiled_and_loaded_at_its_first_use_inside_a_window() {
    let (device, _) = crate::device!();
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<f32>(1000).unwrap();
    for round in 1..=3 {
        let mut recording = stream.prepare().unwrap().begin().unwrap();
        let inc = load::<(InOut<f32>, Len<0>)>(&device, "inc");
        recording.launch(&inc, Grid::covering(1000), (&mut x, Len)).unwrap();
        drop(inc);
        let (mut graph, ended) = recording.end().unwrap();
        stream = ended;
        assert_eq!(graph.nodes(), 1);
        graph.replay(&mut stream).unwrap();
        assert_eq!(stream.read(&x).unwrap(), [round as f32; 1000]);
    }
}

/// A finaliser that runs while something records destroys graphs and frees memory in the middle of the capture.
#[test]
fn win_08_old_objects_may_be_dropped_while_a_stream_records() {
    let (device, k) = crate::device!();
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let grid = Grid::covering(10_000);
    let (mut x, mut y) = (a.alloc::<f32>(10_000).unwrap(), b.alloc::<f32>(10_000).unwrap());
    let (mut g0, ()) = a.record(|work| work.launch(&k.inc, grid, (&mut x, Len))).unwrap();
    let (mut g1, ()) = a.record(|work| work.launch(&k.mul2, grid, (&y, Len, &mut x, Len))).unwrap();
    g1.replay(&mut a).unwrap().wait().unwrap();
    let many: Vec<_> = (0..100).map(|n| written(&mut a, &ramp(1000 + n))).collect();
    a.sync().unwrap();
    let baseline = device.memory_usage().in_use;
    let gate = Gate::close(&mut a);
    g0.replay(&mut a).unwrap();
    let future = a.read_async(&x).unwrap();
    let mut recording = b.prepare().unwrap().begin().unwrap();
    drop((g1, g0, many, future));
    let pinned = vec![5.0f32; 10_000];
    a.write(&mut x, pinned).unwrap_or_else(|error| panic!("{error}"));
    recording.launch(&k.inc, grid, (&mut y, Len)).unwrap();
    gate.open();
    let (mut g2, mut b) = recording.end().unwrap();
    assert_eq!(g2.nodes(), 1);
    g2.replay(&mut b).unwrap();
    assert_eq!(b.read(&y).unwrap(), [1.0; 10_000]);
    assert_eq!(a.read(&x).unwrap(), [5.0; 10_000]);
    assert!(eventually(|| device.memory_usage().in_use < baseline));
    drop((x, y, g2));
    assert!(eventually(|| device.memory_usage().in_use == 0));
}

/// A wait for what a captured stream has written joins whoever waits to that capture; so does an input that another stream
/// brings, which then never rejoins.
#[test]
fn e22_e23_a_buffer_that_a_window_uses_joins_no_other_stream_to_it() {
    let (device, k) = crate::device!();
    let (mut a, mut b, mut c) =
        (device.stream().unwrap(), device.stream().unwrap(), device.stream().unwrap());
    let grid = Grid::covering(1000);
    let (mut x, mut y) = (a.alloc::<f32>(1000).unwrap(), b.alloc::<f32>(1000).unwrap());
    // The input comes from another stream, which is still at it.
    a.launch(&k.inc, grid, (&mut x, Len)).unwrap();
    let mut recording = b.prepare().unwrap().begin().unwrap();
    recording.launch(&k.mul2, grid, (&x, Len, &mut y, Len)).unwrap();
    // Both of its buffers are used elsewhere, at once.
    a.launch(&k.inc, grid, (&mut x, Len)).unwrap();
    c.launch(&k.inc, grid, (&mut y, Len)).unwrap();
    c.launch(&k.axpy, grid, (1.0f32, &x, Len, &mut y, Len)).unwrap();
    assert_eq!(a.read(&y).unwrap(), [3.0; 1000]);
    let (mut graph, mut b) = recording.end().unwrap();
    assert_eq!(graph.nodes(), 1);
    assert_eq!(c.read(&y).unwrap(), [3.0; 1000]);
    graph.replay(&mut b).unwrap();
    assert_eq!(c.read(&y).unwrap(), [4.0; 1000]);
    c.launch(&k.inc, grid, (&mut x, Len)).unwrap();
    graph.replay(&mut a).unwrap();
    assert_eq!(b.read(&y).unwrap(), [6.0; 1000]);
}

/// Blocks along y and z are counted in 16 bits, along x in 31: what is more is cut off, or refused by the first replay.
#[test]
fn shape_05_more_blocks_than_a_dimension_has_are_refused_at_launch_and_at_end() {
    let (device, k) = crate::device!();
    let mut stream = device.stream().unwrap();
    for blocks in [(65_535, 1, 1), (65_536, 1, 1), (1, 65_535, 1), (1, 1, 65_535)] {
        let mut n = stream.alloc::<u32>(1).unwrap();
        stream.launch(&k.count, Grid::blocks(blocks), (&mut n, Len)).unwrap();
        let total = (blocks.0 * blocks.1 * blocks.2) as u32 * 256;
        assert_eq!(stream.read(&n).unwrap(), [total], "{blocks:?}");
        let (mut graph, ()) =
            stream.record(|work| work.launch(&k.count, Grid::blocks(blocks), (&mut n, Len))).unwrap();
        graph.replay(&mut stream).unwrap();
        assert_eq!(stream.read(&n).unwrap(), [2 * total], "{blocks:?}");
    }
    for (blocks, along) in [((1, 65_536, 1), GridLimit::BlocksY), ((1, 1, 65_536), GridLimit::BlocksZ)] {
        let mut n = stream.alloc::<u32>(1).unwrap();
        let mut launch =
            |work: &mut Work<'_, dacapo::Cuda>| work.launch(&k.count, Grid::blocks(blocks), (&mut n, Len));
        let is_limit = |error: &Error| matches!(error, Error::Limit { requested: 65_536, allowed: 65_535, limit, .. } if *limit == along);
        let error = stream.record(&mut launch).unwrap_err();
        assert!(is_limit(&error), "{error}");
        let error = stream.launch(&k.count, Grid::blocks(blocks), (&mut n, Len)).unwrap_err();
        assert!(is_limit(&error), "{error}");
        stream.fill(&mut n, 0).unwrap();
        assert_eq!(stream.read(&n).unwrap(), [0]);
    }
}

#[test]
fn shape_05_an_element_wise_kernel_over_many_values_is_exact() {
    const LEN: usize = 52_428_800;
    let (device, k) = crate::device!();
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<f32>(LEN).unwrap();
    stream.launch(&k.inc, Grid::covering(LEN), (&mut x, Len)).unwrap();
    let (mut graph, ()) =
        stream.record(|work| work.launch(&k.inc, Grid::covering(LEN), (&mut x, Len))).unwrap();
    graph.replay(&mut stream).unwrap();
    assert!(stream.read(&x).unwrap().iter().all(|x| *x == 2.0));
}
