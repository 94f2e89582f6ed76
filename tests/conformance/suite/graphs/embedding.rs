//! Graphs inside graphs.

use dacapo::{Error, Order};

use super::support::*;

/// A child is its nodes, with the edges that their bytes have to what is around them.
#[test]
fn a_child_is_ordered_by_its_bytes_with_what_is_around_it() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut b: Vec<Buffer<f32>> = (0..4).map(|_| s.alloc(N).unwrap()).collect();
    let [x, y, z, other] = &mut b[..] else { unreachable!() };
    let (mut child, ()) = s
        .record(|work| {
            work.launch(&k.add1, Grid::covering(N), (&*x, &mut *y, Len, Len))?;
            work.launch(&k.mul2, Grid::covering(N), (&*y, &mut *z, Len, Len))
        })
        .unwrap();
    let (mut parent, ()) = s
        .record(|work| {
            work.fill(&mut *x, 3.0)?;
            work.fill(&mut *other, 1.0)?;
            work.embed(&mut child)?;
            work.launch(&k.add1, Grid::covering(N), (&*z, &mut *other, Len, Len))
        })
        .unwrap();
    assert_eq!(after(&parent), [vec![], vec![], vec![0], vec![2], vec![1, 3]]);
    parent.replay(&mut s).unwrap();
    assert!(all(&s.read(&*other).unwrap(), 9.0));
}

/// Who asked for the order of the queue has kernels that share hidden state, and they share it in a parent too.
#[test]
fn a_sequential_child_keeps_its_order_in_a_parent_of_any_order() {
    let Some((device, _)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut b: Vec<Buffer<f32>> = (0..3).map(|_| s.alloc(N).unwrap()).collect();
    let (mut child, ()) = s
        .record_with(CaptureOptions::new().order(Order::Sequential), |work| {
            b.iter_mut().try_for_each(|buffer| work.fill(buffer, 1.0))
        })
        .unwrap();
    let (parent, ()) = s.record(|work| work.embed(&mut child)).unwrap();
    assert_eq!(after(&parent), [vec![], vec![0], vec![1]]);
}

/// The parent's order is the parent's: a child without edges gets them in a sequential parent.
#[test]
fn a_sequential_parent_orders_the_nodes_of_its_child() {
    let Some((device, _)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut b: Vec<Buffer<f32>> = (0..3).map(|_| s.alloc(N).unwrap()).collect();
    let (mut child, ()) =
        s.record(|work| b.iter_mut().try_for_each(|buffer| work.fill(buffer, 1.0))).unwrap();
    assert_eq!(child.edges(), 0);
    let options = CaptureOptions::new().order(Order::Sequential);
    let (parent, ()) = s.record_with(options, |work| work.embed(&mut child)).unwrap();
    assert_eq!(after(&parent), [vec![], vec![0], vec![1]]);
}

/// The zeroing that a child needs is needed in its parent, on every replay.
#[test]
fn a_child_s_temporaries_are_zeroed_on_every_replay_of_its_parent() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut out = s.alloc::<f32>(N).unwrap();
    let (mut child, ()) = s
        .record(|work| {
            let mut t = work.alloc::<f32>(N)?;
            work.launch(&k.inc, Grid::covering(N), (&mut t, Len))?;
            work.launch(&k.add1, Grid::covering(N), (&t, &mut out, Len, Len))
        })
        .unwrap();
    let (mut parent, ()) = s
        .record(|work| {
            work.embed(&mut child)?;
            work.embed(&mut child)
        })
        .unwrap();
    assert_eq!(parent.nodes(), 6);
    drop(child);
    for _ in 0..2 {
        parent.replay(&mut s).unwrap();
        assert!(all(&s.read(&out).unwrap(), 2.0));
    }
}

/// Grandchildren are children of children.
#[test]
fn embedding_nests() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut c = s.alloc::<f32>(N).unwrap();
    let mut graph = s.record(|work| work.launch(&k.inc, Grid::covering(N), (&mut c, Len))).unwrap().0;
    for _ in 0..4 {
        let step = |work: &mut Work<'_>| {
            work.embed(&mut graph)?;
            work.embed(&mut graph)
        };
        graph = s.record(step).unwrap().0;
    }
    assert_eq!((graph.nodes(), graph.edges()), (16, 15));
    graph.replay(&mut s).unwrap();
    assert!(all(&s.read(&c).unwrap(), 16.0));
}

/// A callback of a child is one callback, called by whichever graph runs.
#[test]
fn a_child_s_barrier_is_a_barrier_of_its_parent() {
    let Some((device, _)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(N).unwrap();
    let mut y = s.alloc::<f32>(N).unwrap();
    let (mut child, ()) = s.record(|work| work.host_call(|| {})).unwrap();
    let (parent, ()) = s
        .record(|work| {
            work.fill(&mut x, 1.0)?;
            work.embed(&mut child)?;
            work.fill(&mut y, 1.0)
        })
        .unwrap();
    assert_eq!(after(&parent), [vec![], vec![0], vec![1]]);
}

/// A refused operation dooms the window like any other.
#[test]
fn a_child_of_another_device_dooms_the_recording() {
    let (Some((device, _)), Some((foreign, _))) = (working(1), working(1)) else { return };
    let (mut s, mut f) = (device.stream().unwrap(), foreign.stream().unwrap());
    let (mut child, ()) = f.record(|_| Ok(())).unwrap();
    let outcome = s.record(|work| {
        let _ = work.embed(&mut child);
        Ok(())
    });
    let (expected, found) = (device.index(), foreign.index());
    assert!(matches!(
        outcome.unwrap_err(),
        Error::WrongDevice { operation: "embed", object: "graph", expected: e, found: f } if (e, f) == (expected, found)
    ));
    let (empty, ()) = s.record(|_| Ok(())).unwrap();
    assert_eq!(empty.nodes(), 0, "the stream records on");
}

/// `embed` means "do what the graph does": in a warm-up that is a replay, and in the recording after it, its nodes.
#[test]
fn a_child_in_a_capture_runs_in_the_warm_up_and_is_recorded_after_it() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut c = s.alloc::<f32>(N).unwrap();
    let (mut child, ()) = s.record(|work| work.launch(&k.inc, Grid::covering(N), (&mut c, Len))).unwrap();
    let (mut parent, ()) = s
        .capture(|work| {
            work.embed(&mut child)?;
            work.embed(&mut child)
        })
        .unwrap();
    assert!(all(&s.read(&c).unwrap(), 2.0), "the warm-up ran it twice, and the recording did not");
    assert_eq!((parent.nodes(), parent.edges()), (2, 1));
    let mut prepared = s.prepare().unwrap();
    prepared.embed(&mut child).unwrap();
    drop(child);
    parent.replay(&mut prepared).unwrap();
    assert!(all(&prepared.read(&c).unwrap(), 5.0));
}

/// A survivor of the child is written by whichever graph runs its nodes; no replay of the child itself is needed.
#[test]
fn a_buffer_that_a_child_left_to_its_holder_is_written_by_replays_of_the_parent() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut out = s.alloc::<f32>(N).unwrap();
    let (mut child, kept) = s
        .record(|work| {
            let mut kept = work.alloc::<f32>(N)?;
            work.launch(&k.inc, Grid::covering(N), (&mut kept, Len))?;
            Ok(kept)
        })
        .unwrap();
    assert!(matches!(s.read(&kept), Err(Error::NotReplayed)));
    let (mut parent, ()) = s
        .record(|work| {
            work.embed(&mut child)?;
            work.launch(&k.add1, Grid::covering(N), (&kept, &mut out, Len, Len))
        })
        .unwrap();
    assert!(matches!(s.read(&kept), Err(Error::NotReplayed)), "embedding is no replay");
    drop(child);
    for _ in 0..2 {
        parent.replay(&mut s).unwrap();
        assert!(all(&s.read(&kept).unwrap(), 1.0));
        assert!(all(&s.read(&out).unwrap(), 2.0));
    }
}
