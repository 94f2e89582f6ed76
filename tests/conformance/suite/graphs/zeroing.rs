//! Zeroing in a graph: done on every replay, and left out exactly where nobody can tell.

use dacapo::Zeroing;

use super::support::*;

/// The names of a graph's nodes.
fn names(graph: &Graph) -> Vec<String> {
    (0..graph.nodes()).map(|n| graph.node(n).unwrap().name).collect()
}

/// What a recording of `step` comes to; `out` is a buffer from outside.
fn recorded<T>(
    device: &Device,
    step: impl for<'w> FnOnce(&mut Work<'w>, &mut Buffer<f32>) -> dacapo::Result<T>,
) -> Vec<String> {
    let mut s = device.stream().unwrap();
    let mut out = s.alloc::<f32>(N).unwrap();
    let (graph, held) = s.record(|work| step(work, &mut out)).unwrap();
    let names = names(&graph);
    drop(held);
    names
}

#[test]
fn zeroing_is_left_out_where_all_is_overwritten_before_it_is_read() {
    let Some((device, k)) = working(1) else { return };
    let whole = recorded(&device, |work, out| {
        let mut t = work.alloc::<f32>(N)?;
        work.fill(&mut t, 1.0)?;
        work.launch(&k.add1, Grid::covering(N), (&t, out, Len, Len))
    });
    assert_eq!(whole, ["fill", "add1"]);
    let in_halves = recorded(&device, |work, out| {
        let mut t = work.alloc::<f32>(N)?;
        work.write(t.slice_mut(N / 2..)?, &[1.0; N / 2])?;
        work.write(t.slice_mut(..N / 2)?, &[1.0; N / 2])?;
        work.launch(&k.add1, Grid::covering(N), (&t, out, Len, Len))
    });
    assert_eq!(in_halves, ["write", "write", "add1"]);
}

/// Only the bytes that somebody looks at count.
#[test]
fn zeroing_is_left_out_where_only_overwritten_bytes_are_read() {
    let Some((device, k)) = working(1) else { return };
    let names = recorded(&device, |work, out| {
        let mut t = work.alloc::<f32>(2 * N)?;
        work.fill(t.slice_mut(N..)?, 1.0)?;
        work.launch(&k.add1, Grid::covering(N), (t.slice(N..)?, out, Len, Len))
    });
    assert_eq!(names, ["fill", "add1"]);
}

#[test]
fn zeroing_of_what_nobody_uses_and_nobody_holds_is_left_out() {
    let Some((device, _)) = working(1) else { return };
    let names = recorded(&device, |work, out| {
        drop(work.alloc::<f32>(N)?);
        work.fill(out, 1.0)
    });
    assert_eq!(names, ["fill"]);
}

/// One byte that is read before it is written is enough.
#[test]
fn zeroing_stays_where_a_byte_is_read_before_it_is_written() {
    let Some((device, k)) = working(1) else { return };
    let unwritten = recorded(&device, |work, out| {
        let t = work.alloc::<f32>(N)?;
        work.launch(&k.add1, Grid::covering(N), (&t, out, Len, Len))
    });
    assert_eq!(unwritten, ["fill", "add1"]);
    let in_part = recorded(&device, |work, out| {
        let mut t = work.alloc::<f32>(N)?;
        work.write(t.slice_mut(..N - 1)?, &[1.0; N - 1])?;
        work.launch(&k.add1, Grid::covering(N), (&t, out, Len, Len))
    });
    assert_eq!(in_part, ["fill", "write", "add1"]);
    let in_place = recorded(&device, |work, out| {
        let mut t = work.alloc::<f32>(N)?;
        work.launch(&k.inc, Grid::covering(N), (&mut t, Len))?;
        work.launch(&k.add1, Grid::covering(N), (&t, out, Len, Len))
    });
    assert_eq!(in_place, ["fill", "inc", "add1"]);
    let too_late = recorded(&device, |work, out| {
        let mut t = work.alloc::<f32>(N)?;
        work.launch(&k.add1, Grid::covering(N), (&t, out, Len, Len))?;
        work.fill(&mut t, 1.0)
    });
    assert_eq!(too_late, ["fill", "add1", "fill"]);
}

/// Whoever holds a buffer can read it after the replay.
#[test]
fn zeroing_of_a_survivor_stays_unless_all_of_it_is_overwritten() {
    let Some((device, _)) = working(1) else { return };
    let untouched = recorded(&device, |work, _| work.alloc::<f32>(N));
    assert_eq!(untouched, ["fill"]);
    let in_part = recorded(&device, |work, _| {
        let mut t = work.alloc::<f32>(N)?;
        work.write(t.slice_mut(1..)?, &[1.0; N - 1])?;
        Ok(t)
    });
    assert_eq!(in_part, ["fill", "write"]);
    let in_full = recorded(&device, |work, _| {
        let mut t = work.alloc::<f32>(N)?;
        work.write(&mut t, &[1.0; N])?;
        Ok(t)
    });
    assert_eq!(in_full, ["write"]);
}

#[test]
fn scratch_memory_is_not_zeroed() {
    let Some((device, _)) = working(1) else { return };
    assert_eq!(recorded(&device, |work, _| work.alloc_scratch::<f32>(N)), Vec::<String>::new());
}

/// A buffer without bytes has nothing to zero.
#[test]
fn an_empty_buffer_has_no_node() {
    let Some((device, _)) = working(1) else { return };
    assert_eq!(recorded(&device, |work, _| work.alloc::<f32>(0)), Vec::<String>::new());
}

/// A fill that ran once, at the recording, would let a counter grow from replay to replay.
#[test]
fn every_replay_zeroes_again() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut out = s.alloc::<f32>(N).unwrap();
    let (mut graph, mut kept) = s
        .record(|work| {
            let mut t = work.alloc::<f32>(N)?;
            let mut kept = work.alloc::<f32>(N)?;
            work.launch(&k.inc, Grid::covering(N), (&mut t, Len))?;
            work.launch(&k.inc, Grid::covering(N), (&mut kept, Len))?;
            work.launch(&k.add1, Grid::covering(N), (&t, &mut out, Len, Len))?;
            Ok(kept)
        })
        .unwrap();
    for _ in 0..3 {
        graph.replay(&mut s).unwrap();
        assert!(all(&s.read(&out).unwrap(), 2.0));
        assert!(all(&s.read(&kept).unwrap(), 1.0));
        s.fill(&mut kept, 100.0).unwrap();
    }
}

/// The bytes of a temporary were another one's a moment before.
#[test]
fn a_temporary_in_recycled_bytes_reads_as_zero() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut outs: Vec<Buffer<f32>> = (0..2).map(|_| s.alloc(N).unwrap()).collect();
    let (mut graph, ()) = s
        .record(|work| {
            let [first, second] = &mut outs[..] else { unreachable!() };
            let mut dirty = work.alloc_scratch::<f32>(N)?;
            work.fill(&mut dirty, 66.0)?;
            work.launch(&k.add1, Grid::covering(N), (&dirty, &mut *first, Len, Len))?;
            drop(dirty);
            let mut clean = work.alloc::<f32>(N)?;
            work.copy(first.slice(..1)?, clean.slice_mut(..1)?)?;
            work.launch(&k.add1, Grid::covering(N), (&clean, &mut *second, Len, Len))
        })
        .unwrap();
    graph.replay(&mut s).unwrap();
    let read = s.read(&outs[1]).unwrap();
    assert_eq!(read[0], 68.0);
    assert!(all(&read[1..], 1.0));
}

/// Who asks for `Always` does not trust that kernels keep their promises.
#[test]
fn under_always_nothing_is_left_out_and_scratch_is_zeroed_too() {
    let Some(device) = open(DeviceOptions::new().zeroing(Zeroing::Always)) else { return };
    let k = Kernels::load(&device);
    let overwritten = recorded(&device, |work, out| {
        let mut t = work.alloc::<f32>(N)?;
        work.fill(&mut t, 1.0)?;
        work.launch(&k.add1, Grid::covering(N), (&t, out, Len, Len))
    });
    assert_eq!(overwritten, ["fill", "fill", "add1"]);
    let scratch = recorded(&device, |work, _| work.alloc_scratch::<f32>(N));
    assert_eq!(scratch, ["fill"]);
    let mut s = device.stream().unwrap();
    let mut old = s.alloc::<f32>(N).unwrap();
    s.fill(&mut old, 7.0).unwrap();
    drop(old);
    let new = s.alloc_scratch::<f32>(N).unwrap();
    assert!(all(&s.read(&new).unwrap(), 0.0));
}
