//! The memory planned for a graph.

use dacapo::{Error, ErrorKind, Order};

use super::support::*;

const BYTES: usize = 4 * N;

/// `links` temporaries in a row, each made from the one before, and the last one added to `out`.
fn chain(
    work: &mut Work<'_>,
    k: &Kernels,
    links: usize,
    x: &Buffer<f32>,
    out: &mut Buffer<f32>,
) -> dacapo::Result<()> {
    let mut last = work.alloc_scratch::<f32>(N)?;
    work.launch(&k.add1, Grid::covering(N), (x, &mut last, Len, Len))?;
    for _ in 1..links {
        let mut next = work.alloc_scratch::<f32>(N)?;
        work.launch(&k.add1, Grid::covering(N), (&last, &mut next, Len, Len))?;
        last = next;
    }
    work.launch(&k.add1, Grid::covering(N), (&last, out, Len, Len))
}

/// A temporary for each layer of a network is what the arena is there to avoid.
#[test]
fn a_chain_of_temporaries_takes_the_room_of_two() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(N).unwrap();
    let mut out = s.alloc::<f32>(N).unwrap();
    let (mut graph, ()) = s.record(|work| chain(work, &k, 20, &x, &mut out)).unwrap();
    assert_eq!((graph.arena_bytes(), graph.unshared_bytes()), (2 * BYTES, 20 * BYTES));
    for value in [0.0, 100.0] {
        s.fill(&mut x, value).unwrap();
        graph.replay(&mut s).unwrap();
        assert!(all(&s.read(&out).unwrap(), value + 21.0));
    }
}

/// Sharing between branches that run side by side would be a race.
#[test]
fn branches_that_may_run_side_by_side_share_no_bytes() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let x = s.alloc::<f32>(N).unwrap();
    let mut outs: Vec<Buffer<f32>> = (0..4).map(|_| s.alloc(N).unwrap()).collect();
    let mut record = |options: CaptureOptions| {
        let step = |work: &mut Work<'_>| outs.iter_mut().try_for_each(|out| chain(work, &k, 4, &x, out));
        s.record_with(options, step).unwrap().0
    };
    let parallel = record(CaptureOptions::new());
    assert_eq!((parallel.arena_bytes(), parallel.unshared_bytes()), (8 * BYTES, 16 * BYTES));
    let sequential = record(CaptureOptions::new().order(Order::Sequential));
    assert_eq!((sequential.arena_bytes(), sequential.unshared_bytes()), (2 * BYTES, 16 * BYTES));
}

/// A buffer whose handle is dropped early or late takes the same room: its uses decide.
#[test]
fn when_a_handle_is_dropped_does_not_matter() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let x = s.alloc::<f32>(N).unwrap();
    let mut out = s.alloc::<f32>(N).unwrap();
    let (graph, ()) = s
        .record(|work| {
            let mut temporaries = Vec::new();
            for n in 0..10 {
                let mut next = work.alloc_scratch::<f32>(N)?;
                let last = temporaries.last().unwrap_or(&x);
                work.launch(
                    &k.add1,
                    Grid::covering(N),
                    (if n == 0 { &x } else { last }, &mut next, Len, Len),
                )?;
                temporaries.push(next);
            }
            work.copy(&temporaries[9], &mut out)
        })
        .unwrap();
    assert_eq!(graph.arena_bytes(), 2 * BYTES);
}

/// A limit that is met is no error, and one that is not says by how much.
#[test]
fn an_arena_beyond_its_limit_is_refused_with_both_numbers() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(N).unwrap();
    let mut out = s.alloc::<f32>(N).unwrap();
    s.fill(&mut out, 3.0).unwrap();
    let baseline = Baseline::take(&mut s);
    let options = |limit| CaptureOptions::new().arena_limit(limit);
    let (graph, ()) = s.record_with(options(2 * BYTES), |work| chain(work, &k, 5, &x, &mut out)).unwrap();
    drop(graph);

    let mut recording = s.prepare_with(options(2 * BYTES - 1)).unwrap().begin().unwrap();
    let held = recording.alloc::<f32>(N).unwrap();
    let mut last = recording.alloc_scratch::<f32>(N).unwrap();
    recording.launch(&k.add1, Grid::covering(N), (&x, &mut last, Len, Len)).unwrap();
    let mut next = recording.alloc_scratch::<f32>(N).unwrap();
    recording.launch(&k.add1, Grid::covering(N), (&last, &mut next, Len, Len)).unwrap();
    recording.launch(&k.add1, Grid::covering(N), (&next, &mut out, Len, Len)).unwrap();
    drop((last, next));
    let (mut s, error) = recording.end().unwrap_err().into_parts();
    assert!(
        matches!(error, Error::ArenaLimit { needed, limit } if (needed, limit) == (2 * BYTES, 2 * BYTES - 1))
    );
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    let lost = s.read(&held).unwrap_err();
    assert!(matches!(&lost, Error::NeverSealed { cause } if matches!(**cause, Error::ArenaLimit { .. })));
    assert!(all(&s.read(&out).unwrap(), 3.0), "bytes from outside are what they were");
    drop(held);
    assert!(baseline.returns(&mut s));
    s.fill(&mut x, 1.0).unwrap();
    let (mut graph, ()) = s.record(|work| chain(work, &k, 5, &x, &mut out)).unwrap();
    graph.replay(&mut s).unwrap();
    assert!(all(&s.read(&out).unwrap(), 7.0));
}

/// An arena is the graph's: it comes with `end` and goes with the graph.
#[test]
fn an_arena_goes_back_to_the_driver_with_its_graph() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let x = s.alloc::<f32>(N).unwrap();
    let mut out = s.alloc::<f32>(N).unwrap();
    let baseline = Baseline::take(&mut s);
    let before = device.memory_usage();
    let (mut graph, ()) = s.record(|work| chain(work, &k, 20, &x, &mut out)).unwrap();
    assert_eq!(device.memory_usage().in_use, before.in_use + 2 * BYTES);
    assert_eq!(device.memory_usage().held, before.held + 2 * BYTES, "an arena is a page of its own");
    graph.replay(&mut s).unwrap();
    drop(graph);
    assert!(baseline.returns(&mut s));
}

/// A graph without temporaries holds no memory.
#[test]
fn a_graph_without_temporaries_has_no_arena() {
    let Some((device, _)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(N).unwrap();
    let before = device.memory_usage();
    let (graph, ()) = s
        .record_with(CaptureOptions::new().arena_limit(0), |work| {
            drop(work.alloc_scratch::<f32>(N)?);
            work.fill(&mut x, 1.0)
        })
        .unwrap();
    assert_eq!((graph.arena_bytes(), graph.unshared_bytes()), (0, 0));
    assert_eq!(device.memory_usage(), before);
}

/// A temporary of any size lies where its elements may lie.
#[test]
fn temporaries_of_odd_sizes_do_not_overlap() {
    let Some((device, _)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let sizes = [1usize, 3, 255, 256, 257, 1000];
    let mut outs: Vec<Buffer<u8>> = sizes.iter().map(|size| s.alloc(*size).unwrap()).collect();
    let (mut graph, ()) = s
        .record(|work| {
            let mut temporaries = Vec::new();
            for (value, size) in sizes.iter().enumerate() {
                let mut t = work.alloc_scratch::<u8>(*size)?;
                work.fill(&mut t, value as u8)?;
                temporaries.push(t);
            }
            temporaries.iter().zip(&mut outs).try_for_each(|(t, out)| work.copy(t, out))
        })
        .unwrap();
    graph.replay(&mut s).unwrap();
    for (value, out) in outs.iter().enumerate() {
        assert_eq!(s.read(out).unwrap(), vec![value as u8; sizes[value]]);
    }
}
