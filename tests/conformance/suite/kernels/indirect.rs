//! Launches that find the number of their blocks in a buffer when they run.

use dacapo::{Error, ErrorKind, GridLimit};

use super::super::support::*;
use super::super::zoo::{self, InPlace, Loaded};

/// Threads of one block of [`zoo::visit`].
const BLOCK: usize = 256;
/// Elements that threads are counted in: those of 16 blocks.
const THREADS: usize = 16 * BLOCK;

/// What a test of such launches needs, where the backend has them.
struct Bench {
    device: Device,
    stream: Stream,
    visit: Loaded<InPlace<u8>>,
    counts: Buffer<u32>,
    seen: Buffer<u8>,
}

impl Bench {
    fn new() -> Option<Self> {
        let device = device(1).filter(|_| subject::INDIRECT)?;
        let visit = zoo::visit().load(&device).unwrap();
        let mut stream = device.stream().unwrap();
        let (counts, seen) = (stream.alloc(3).unwrap(), stream.alloc(THREADS).unwrap());
        Some(Bench { device, stream, visit, counts, seen })
    }

    /// How many blocks were seen since the last call, each of whose threads must have run once.
    #[track_caller]
    fn blocks(&mut self) -> usize {
        let seen = self.stream.read(&self.seen).unwrap();
        self.stream.fill(&mut self.seen, 0).unwrap();
        let threads = seen.iter().take_while(|visits| **visits == 1).count();
        assert!(seen[threads..].iter().all(|visits| *visits == 0), "a thread ran twice, or out of its place");
        assert_eq!(threads % BLOCK, 0, "a block ran in part");
        threads / BLOCK
    }

    fn record(&mut self) -> Graph {
        let Bench { visit, counts, seen, .. } = self;
        let record = |work: &mut Work<'_>| work.launch(visit, Grid::indirect(&*counts), (seen, Len));
        self.stream.record(record).unwrap().0
    }
}

/// Counts, and how many blocks they come to. A grid with one dimension too few, or with two of them exchanged, has another
/// number.
const COUNTS: [([u32; 3], usize); 7] = [
    ([1, 1, 1], 1),
    ([3, 1, 1], 3),
    ([2, 3, 2], 12),
    ([0, 1, 1], 0),
    ([5, 0, 3], 0),
    ([4, 1, 0], 0),
    ([1, 2, 7], 14),
];

/// A count that was read at the call, or kept from the launch before, shows as another number of blocks.
#[test]
fn an_indirect_launch_has_as_many_blocks_as_its_buffer_says_when_it_runs() {
    let Some(mut b) = Bench::new() else { return };
    for (counts, blocks) in COUNTS {
        let gate = Gate::close(&mut b.stream);
        b.stream.write(&mut b.counts, &counts).unwrap();
        b.stream.launch(&b.visit, Grid::indirect(&b.counts), (&mut b.seen, Len)).unwrap();
        // What is written after the launch is none of its business.
        b.stream.fill(&mut b.counts, 9).unwrap();
        gate.open();
        assert_eq!(b.blocks(), blocks, "{counts:?}");
    }
}

/// A graph that kept the counts of its recording, or of its first replay.
#[test]
fn every_replay_finds_the_counts_that_a_write_or_a_kernel_left() {
    let Some(mut b) = Bench::new() else { return };
    let inc = zoo::inc::<u32>().load(&b.device).unwrap();
    b.stream.write(&mut b.counts, &[9, 9, 9]).unwrap();
    let mut graph = b.record();
    assert_eq!(b.blocks(), 0, "a recording runs nothing");
    for (counts, blocks) in COUNTS {
        b.stream.write(&mut b.counts, &counts).unwrap();
        graph.replay(&mut b.stream).unwrap();
        assert_eq!(b.blocks(), blocks, "{counts:?}");
    }
    b.stream.write(&mut b.counts, &[1, 1, 1]).unwrap();
    for blocks in 2..6 {
        let (mut x, _) = b.counts.split_at_mut(1).unwrap();
        b.stream.launch(&inc, Grid::covering(1), (&mut x, Len)).unwrap();
        graph.replay(&mut b.stream).unwrap();
        assert_eq!(b.blocks(), blocks);
    }
}

/// Between a replay and the next write of its counts nothing but the order of the bytes keeps the two apart.
#[test]
fn replays_and_writes_of_their_counts_that_nobody_waits_between_keep_their_order() {
    let Some(mut b) = Bench::new() else { return };
    let inc = zoo::accumulate::<u8>().load(&b.device).unwrap();
    let mut other = b.device.stream().unwrap();
    let mut sum = b.stream.alloc::<u8>(THREADS).unwrap();
    let mut graph = b.record();
    for blocks in [1, 5, 0, 16, 2, 16] {
        other.write(&mut b.counts, &[blocks, 1, 1]).unwrap();
        graph.replay(&mut b.stream).unwrap();
        other.launch(&inc, Grid::covering(THREADS), (&b.seen, &mut sum, Len, Len)).unwrap();
        b.stream.fill(&mut b.seen, 0).unwrap();
    }
    let sums = b.stream.read(&sum).unwrap();
    assert_eq!([0, 1, 2, 5, 15].map(|block| sums[block * BLOCK]), [5, 4, 3, 2, 2]);
}

/// Pages start at multiples of a lot; a slice of one need not, and may lie across such a multiple.
#[test]
fn counts_may_be_a_slice_at_any_place_of_a_larger_buffer() {
    let Some(mut b) = Bench::new() else { return };
    let mut many = b.stream.alloc::<u32>(200).unwrap();
    for at in [0, 1, 5, 62, 63, 64, 127, 197] {
        b.stream.fill(&mut many, 70_000).unwrap();
        b.stream.write(many.slice_mut(at..at + 3).unwrap(), &[2, 1, 3]).unwrap();
        let counts = many.slice(at..at + 3).unwrap();
        b.stream.launch(&b.visit, Grid::indirect(counts), (&mut b.seen, Len)).unwrap();
        assert_eq!(b.blocks(), 6, "at {at}");
        let Bench { stream, visit, seen, .. } = &mut b;
        let (mut graph, ()) =
            stream.record(|work| work.launch(visit, Grid::indirect(counts), (seen, Len))).unwrap();
        graph.replay(stream).unwrap();
        assert_eq!(b.blocks(), 6, "at {at}, recorded");
    }
}

/// Counts without an edge: the launch would run beside the kernel that makes them, or the next one before it has read them.
#[test]
fn counts_that_the_graph_makes_itself_are_data_like_any_other() {
    let Some(mut b) = Bench::new() else { return };
    let fill = zoo::fill::<u32>().load(&b.device).unwrap();
    let Bench { stream, visit, seen, .. } = &mut b;
    let record = |work: &mut Work<'_>| {
        let mut counts = work.alloc_scratch::<u32>(3)?;
        let (early, late) = seen.split_at_mut(8 * BLOCK)?;
        work.launch(&fill, Grid::covering(3), (&mut counts, 2, Len))?;
        work.launch(visit, Grid::indirect(&counts), (early, Len))?;
        work.launch(&fill, Grid::covering(3), (&mut counts, 1, Len))?;
        work.launch(visit, Grid::indirect(&counts), (late, Len))
    };
    let (mut graph, ()) = stream.record(record).unwrap();
    assert_eq!(after(&graph), [vec![], vec![0], vec![1], vec![2]]);
    let launch = graph.node(1).unwrap();
    assert_eq!((launch.name.as_str(), launch.bytes), ("visit", (8 * BLOCK + 12, 8 * BLOCK)));
    let (mut parent, ()) = stream.record(|work| work.embed(&mut graph)).unwrap();
    for graph in [&mut graph, &mut parent] {
        for _ in 0..2 {
            graph.replay(&mut b.stream).unwrap();
            assert_eq!(b.blocks(), 9);
        }
    }
}

/// Freed counts are somebody else's bytes, and any number.
#[test]
fn a_graph_keeps_the_counts_that_its_launches_read() {
    let Some(mut b) = Bench::new() else { return };
    b.stream.write(&mut b.counts, &[4, 2, 1]).unwrap();
    let mut graph = b.record();
    b.counts = b.stream.alloc(3).unwrap();
    let sentinels = Sentinels::of(&mut b.stream, 40, 3, 1u32);
    graph.replay(&mut b.stream).unwrap();
    assert_eq!(b.blocks(), 8);
    assert!(sentinels.are_intact(&mut b.stream));
}

/// What a device does with more blocks than it allows is for no driver to say.
#[test]
fn too_many_blocks_are_none() {
    let Some(mut b) = Bench::new() else { return };
    let mut graph = b.record();
    let excess = [(65_536, GridLimit::BlocksY), (u32::MAX, GridLimit::BlocksZ)];
    for (count, limit) in excess {
        let counts = if limit == GridLimit::BlocksY { [1, count, 1] } else { [2, 2, count] };
        for recorded in [false, true] {
            b.stream.write(&mut b.counts, &counts).unwrap();
            match recorded {
                false => b.stream.launch(&b.visit, Grid::indirect(&b.counts), (&mut b.seen, Len)).unwrap(),
                true => _ = graph.replay(&mut b.stream).unwrap(),
            }
            if subject::REPORTS_TOO_MANY_BLOCKS {
                let error = refused(b.stream.sync());
                let requested_too_many = matches!(
                    error,
                    Error::Limit { limit: named, requested, allowed: 65_535, .. }
                        if named == limit && requested == u64::from(count)
                );
                assert!(requested_too_many, "{error}");
                assert_tainted(&mut b.stream, &b.seen, &error);
                b.stream.fill(&mut b.seen, 0).unwrap();
            }
            assert_eq!(b.blocks(), 0, "{counts:?}");
        }
    }
    b.stream.write(&mut b.counts, &[2, 0, u32::MAX]).unwrap();
    graph.replay(&mut b.stream).unwrap();
    assert_eq!(b.blocks(), 0, "none in y");
    b.stream.write(&mut b.counts, &[2, 1, 1]).unwrap();
    graph.replay(&mut b.stream).unwrap();
    assert_eq!(b.blocks(), 2);
}

/// The largest number that every device allows, in each dimension.
#[test]
fn shape_05_as_many_blocks_as_are_allowed_are_launched() {
    let Some(mut b) = Bench::new() else { return };
    let inc = zoo::inc::<u32>().load(&b.device).unwrap();
    let mut c = b.stream.alloc::<u32>(N).unwrap();
    let Bench { stream, counts, .. } = &mut b;
    let record = |work: &mut Work<'_>| work.launch(&inc, Grid::indirect(&*counts), (&mut c, Len));
    let (mut graph, ()) = stream.record(record).unwrap();
    for (times, most) in (1..).zip([[65_535, 1, 1], [1, 65_535, 1], [1, 1, 65_535]]) {
        stream.write(&mut *counts, &most).unwrap();
        graph.replay(stream).unwrap();
        stream.launch(&inc, Grid::indirect(&*counts), (&mut c, Len)).unwrap();
        assert_eq!(stream.read(&c).unwrap(), [2 * times; N]);
    }
}

/// Chunks that do not come out even would write each other's rows.
#[test]
fn a_kernel_in_chunks_is_divided_over_the_rows_that_it_finds() {
    let Some(mut b) = Bench::new() else { return };
    let rows = zoo::rows().load(&b.device).unwrap();
    let x: Vec<u32> = (0..4 * BLOCK as u32).collect();
    let (mut from, mut to) = (b.stream.alloc(x.len()).unwrap(), b.stream.alloc(x.len()).unwrap());
    let mut marks = b.stream.alloc::<u8>(4).unwrap();
    b.stream.write(&mut from, &x).unwrap();
    b.stream.write(&mut b.counts, &[1, 1, 4]).unwrap();
    let grid = Grid::indirect(&b.counts);
    b.stream.launch(&rows, grid, (&from, &mut to, &mut marks, Len, Len, Len)).unwrap();
    assert_eq!(b.stream.read(&to).unwrap(), x);
    assert_eq!(b.stream.read(&marks).unwrap(), [1; 4]);
    b.stream.write(&mut b.counts, &[1, 1, 3]).unwrap();
    let grid = Grid::indirect(&b.counts);
    b.stream.launch(&rows, grid, (&from, &mut to, &mut marks, Len, Len, Len)).unwrap();
    if subject::RUNS_IN_CHUNKS {
        let error = refused(b.stream.sync());
        assert!(matches!(error, Error::Unchunkable { len: 1024, outer: 3, .. }), "{error}");
        assert_tainted(&mut b.stream, &marks, &error);
    }
}

/// Counts that nobody wrote are any number of blocks.
#[test]
fn an_indirect_launch_whose_counts_failed_is_skipped() {
    let Some(mut b) = Bench::new() else { return };
    let mut graph = b.record();
    let (counts, seen) = (&mut b.counts, &mut b.seen);
    fail_late(&mut b.stream, counts);
    b.stream.launch(&b.visit, Grid::indirect(&*counts), (&mut *seen, Len)).unwrap();
    let error = refused(b.stream.sync());
    assert!(matches!(error, Error::CallbackPanicked { .. }), "{error}");
    assert_tainted(&mut b.stream, seen, &error);
    b.stream.fill(&mut *seen, 0).unwrap();
    graph.replay(&mut b.stream).unwrap();
    assert_tainted(&mut b.stream, seen, &error);
    b.stream.fill(seen, 0).unwrap();
    b.stream.write(counts, &[3, 1, 1]).unwrap();
    graph.replay(&mut b.stream).unwrap();
    assert_eq!(b.blocks(), 3);
}

/// A launch that is refused must not run with what happens to lie behind its counts, nor leave its outputs as if it had run.
#[test]
fn what_no_indirect_launch_can_be_is_refused_at_the_call_and_fails_the_window_that_it_is_in() {
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
    let inc = zoo::inc::<u32>().load(&device).unwrap();
    let checked = zoo::inc::<u32>().check(|_, _| Ok::<_, &str>(())).load(&device).unwrap();
    let (counts, mut c) = (s.alloc::<u32>(4).unwrap(), s.alloc::<u32>(N).unwrap());
    for (kernel, len) in [(&inc, 4), (&inc, 2), (&inc, 0), (&checked, 3), (&inc, 3)] {
        let counts = counts.slice(..len).unwrap();
        let is_expected = |error: &Error| match (subject::INDIRECT, error) {
            (true, Error::BlockCounts { found, .. }) => kernel.name() == inc.name() && *found == len,
            (true, error) => len == 3 && error.kind() == ErrorKind::Unsupported,
            (false, error) => error.kind() == ErrorKind::Unsupported,
        };
        let launched = s.launch(kernel, Grid::indirect(counts), (&mut c, Len));
        if subject::INDIRECT && len == 3 && std::ptr::eq(kernel, &inc) {
            launched.unwrap();
            continue;
        }
        let error = refused(launched);
        assert!(is_expected(&error), "{error}");
        assert_tainted(&mut s, &c, &error);
        s.fill(&mut c, 0).unwrap();
        let error = refused(s.record(|w| {
            let _ = w.launch(kernel, Grid::indirect(counts), (&mut c, Len));
            Ok(())
        }));
        assert!(is_expected(&error), "{error}");
        assert_eq!(s.read(&c).unwrap(), [0; N], "a refused recording changes nothing");
    }
    s.launch(&inc, Grid::covering(N), (&mut c, Len)).unwrap();
    assert_eq!(s.read(&c).unwrap(), [1; N]);
}
