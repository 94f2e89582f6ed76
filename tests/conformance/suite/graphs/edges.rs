//! The edges of a graph: those of the data, by byte range, and none that others imply.

use dacapo::Order;

use super::support::*;
use super::zoo;

/// Fills `buffer`, or a part of it.
fn fill(work: &mut Work<'_>, buffer: &mut Buffer<f32>, range: std::ops::Range<usize>) -> dacapo::Result<()> {
    work.fill(buffer.slice_mut(range)?, 1.0)
}

/// An edge for the queue's order would serialise what is independent.
#[test]
fn nodes_that_share_no_bytes_have_no_edges() {
    let Some((device, _)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut buffers: Vec<Buffer<f32>> = (0..4).map(|_| s.alloc(N).unwrap()).collect();
    let step = |work: &mut Work<'_>| buffers.iter_mut().try_for_each(|buffer| work.fill(buffer, 1.0));
    let (graph, ()) = s.record(step).unwrap();
    assert_eq!((graph.nodes(), graph.edges()), (4, 0));
}

/// Every kind of conflict is an edge: write then read, read then write, write then write. Reads are none.
#[test]
fn conflicts_are_edges_and_common_inputs_are_not() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(N).unwrap();
    let mut y = s.alloc::<f32>(N).unwrap();
    let mut z = s.alloc::<f32>(N).unwrap();
    let (graph, ()) = s
        .record(|work| {
            work.fill(&mut x, 1.0)?; // 0
            work.launch(&k.add1, Grid::covering(N), (&x, &mut y, Len, Len))?; // 1 reads what 0 wrote
            work.copy(&x, &mut z)?; // 2 reads it too
            work.fill(&mut x, 2.0)?; // 3 overwrites what 1 and 2 read
            work.fill(&mut x, 3.0) // 4 overwrites what 3 wrote
        })
        .unwrap();
    assert_eq!(after(&graph), [vec![], vec![0], vec![0], vec![1, 2], vec![3]]);
}

/// Whole buffers as the unit would order the two halves of a picture.
#[test]
fn edges_go_by_the_bytes_of_slices() {
    let Some((device, _)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(100).unwrap();
    let (graph, ()) = s
        .record(|work| {
            fill(work, &mut x, 0..50)?; // 0
            fill(work, &mut x, 50..100)?; // 1 touches 0 and shares nothing with it
            fill(work, &mut x, 49..51)?; // 2 overlaps both
            fill(work, &mut x, 0..49)?; // 3 overlaps 0 only
            fill(work, &mut x, 51..100)?; // 4 overlaps 1 only
            fill(work, &mut x, 10..10)?; // nothing at all, and no node
            fill(work, &mut x, 0..100) // 5 overlaps everything
        })
        .unwrap();
    assert_eq!(after(&graph), [vec![], vec![], vec![0, 1], vec![0], vec![1], vec![2, 3, 4]]);
}

/// One byte in common is a conflict, also between elements of different types.
#[test]
fn edges_of_cast_slices_go_by_bytes() {
    let Some((device, _)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(16).unwrap();
    let (graph, ()) = s
        .record(|work| {
            work.fill(x.slice_mut(0..4)?, 1)?; // bytes 0..16
            work.fill(x.as_slice_mut().cast::<u8>()?.into_range(16..20)?, 2)?; // bytes 16..20
            work.fill(x.as_slice_mut().cast::<u8>()?.into_range(15..16)?, 3) // byte 15
        })
        .unwrap();
    assert_eq!(after(&graph), [vec![], vec![], vec![0]]);
}

/// The two parts of a split buffer are as good as two buffers.
#[test]
fn halves_of_one_buffer_have_no_edges_between_them() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut low = s.alloc::<f32>(2 * N).unwrap();
    let mut high = low.split_off(N).unwrap();
    let (graph, ()) = s
        .record(|work| {
            work.launch(&k.inc, Grid::covering(N), (&mut low, Len))?;
            work.launch(&k.inc, Grid::covering(N), (&mut high, Len))?;
            work.launch(&k.add1, Grid::covering(N), (&low, &mut high, Len, Len))
        })
        .unwrap();
    assert_eq!(after(&graph), [vec![], vec![], vec![0, 1]]);
}

/// Edges that others imply cost a driver time on every replay.
#[test]
fn an_edge_that_a_path_implies_is_left_out() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let sum3 = zoo::sum3().load(&device).unwrap();
    let mut b: Vec<Buffer<f32>> = (0..4).map(|_| s.alloc(N).unwrap()).collect();
    let (graph, ()) = s
        .record(|work| {
            let [x, y, z, out] = &mut b[..] else { unreachable!() };
            work.fill(&mut *x, 1.0)?;
            work.launch(&k.add1, Grid::covering(N), (&*x, &mut *y, Len, Len))?;
            work.launch(&k.add1, Grid::covering(N), (&*y, &mut *z, Len, Len))?;
            work.launch(&sum3, Grid::covering(N), (&*x, &*y, &*z, &mut *out, Len, Len, Len, Len))
        })
        .unwrap();
    assert_eq!(after(&graph), [vec![], vec![0], vec![1], vec![2]], "0 and 1 reach 3 through 2");
}

/// Kernels that share state behind our back rely on the queue's order.
#[test]
fn a_sequential_graph_keeps_the_order_of_the_recording() {
    let Some((device, _)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut buffers: Vec<Buffer<f32>> = (0..4).map(|_| s.alloc(N).unwrap()).collect();
    let step = |work: &mut Work<'_>| buffers.iter_mut().try_for_each(|buffer| work.fill(buffer, 1.0));
    let (graph, ()) = s.record_with(CaptureOptions::new().order(Order::Sequential), step).unwrap();
    assert_eq!(after(&graph), [vec![], vec![0], vec![1], vec![2]]);
}

/// A callback that names nothing may look at anything.
#[test]
fn a_callback_is_a_barrier_unless_it_names_what_it_uses() {
    let Some((device, _)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(N).unwrap();
    let mut y = s.alloc::<f32>(N).unwrap();
    let (graph, ()) = s
        .record(|work| {
            work.fill(&mut x, 1.0)?; // 0
            work.fill(&mut y, 1.0)?; // 1
            work.host_call(|| {})?; // 2: after both
            work.fill(&mut x, 2.0)?; // 3: after the barrier, which has 0 behind it
            work.fill(&mut y, 2.0)?; // 4
            work.host_call_with(Touches::new().reads(&x), || {})?; // 5: after 3 only
            work.host_call_with(Touches::new().writes(&mut y), || {})?; // 6: after 4 only
            work.host_call_with(Touches::new(), || {})?; // 7: names nothing, so that only the barrier holds it
            work.host_call(|| {}) // 8
        })
        .unwrap();
    let expected = [vec![], vec![], vec![0, 1], vec![2], vec![2], vec![3], vec![4], vec![2], vec![5, 6, 7]];
    assert_eq!(after(&graph), expected);
}

/// Arena reuse may not add an edge: that would trade speed for memory behind the user's back.
#[test]
fn sharing_the_arena_adds_no_edge() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let x = s.alloc::<f32>(N).unwrap();
    let mut outs: Vec<Buffer<f32>> = (0..8).map(|_| s.alloc(N).unwrap()).collect();
    let mut kept = Vec::new();
    let mut record = |keep: bool| {
        let step = |work: &mut Work<'_>| {
            for out in &mut outs {
                let mut t = work.alloc_scratch::<f32>(N)?;
                work.launch(&k.add1, Grid::covering(N), (&x, &mut t, Len, Len))?;
                work.launch(&k.mul2, Grid::covering(N), (&t, &mut *out, Len, Len))?;
                if keep {
                    kept.push(t);
                }
            }
            Ok(())
        };
        s.record(step).unwrap().0
    };
    let (planned, unplanned) = (record(false), record(true));
    assert_eq!(after(&planned), after(&unplanned));
    assert_eq!((planned.nodes(), planned.edges()), (16, 8));
    assert_eq!(planned.arena_bytes(), planned.unshared_bytes(), "parallel branches share nothing");
    assert_eq!(unplanned.arena_bytes(), 0);
}
