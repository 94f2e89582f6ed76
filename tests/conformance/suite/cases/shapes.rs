//! Cases SHAPE-01, 02, 04 and 05: nothing at all, odd sizes, and large grids.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use dacapo::{Call, Error, GridLimit, Result};

use super::support::*;
use super::zoo;

fn grid() -> Grid {
    Grid::covering(N)
}

/// Everything that can be done with nothing.
fn with_nothing(w: &mut impl Enqueue<Subject>, k: &Kernels<u32>, b: &mut Buffer<u32>) -> Result<()> {
    let mut empty = w.alloc::<u32>(0)?;
    let mut scratch = w.alloc_scratch::<u32>(0)?;
    w.write(&mut empty, &[])?;
    w.fill(&mut empty, 5)?;
    w.copy(&empty, &mut scratch)?;
    w.write(b.slice_mut(2..2)?, &[])?;
    w.copy(b.slice(N..)?, &mut empty)?;
    w.launch(&k.add1, Grid::covering(0), (&empty, &mut scratch, Len, Len))
}

/// Success without an allocation, a null pointer, an extent clamped to one: each is a crash or a stray copy.
#[test]
fn shape_01_zero_elements_are_nothing_in_every_phase_and_call_no_driver() {
    let Some(device) = device(1) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut s = device.stream().unwrap();
    let mut b = s.alloc::<u32>(N).unwrap();
    s.fill(&mut b, 9).unwrap();
    s.sync().unwrap();
    let before = subject::driver_calls(&device);
    with_nothing(&mut s, &k, &mut b).unwrap();
    let mut prepared = s.prepare().unwrap();
    with_nothing(&mut prepared, &k, &mut b).unwrap();
    assert_eq!(subject::driver_calls(&device), before);
    let mut recording = prepared.begin().unwrap();
    with_nothing(&mut recording, &k, &mut b).unwrap();
    let (mut graph, mut s) = recording.end().unwrap();
    assert_eq!((graph.nodes(), graph.arena_bytes()), (0, 0));
    graph.replay(&mut s).unwrap();
    assert_eq!(s.read(&b).unwrap(), [9; N]);
}

#[test]
fn shape_01_reading_nothing_gives_nothing() {
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
    let empty = s.alloc::<u32>(0).unwrap();
    let b = s.alloc::<u32>(N).unwrap();
    s.sync().unwrap();
    let copies =
        |device: &Device| (subject::calls_of(device, Call::Read), subject::calls_of(device, Call::Write));
    let before = copies(&device);
    assert_eq!(s.read(&empty).unwrap(), [0u32; 0]);
    assert_eq!(s.read(b.slice(5..5).unwrap()).unwrap(), [0u32; 0]);
    assert_eq!(s.read(b.slice(N..).unwrap()).unwrap(), [0u32; 0]);
    s.read_into(&empty, &mut []).unwrap();
    let mut future = s.read_async(&empty).unwrap();
    let polled = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Ok(none)) if none.is_empty()), "there is nothing to wait for");
    assert_eq!(copies(&device), before, "nothing is asked of the driver");
    assert_eq!(s.read(&b).unwrap(), [0; N]);
}

/// A grid's rows over a tensor of shape [0, 1], [1, 0] or [3, 0, 2]; and an empty buffer as argument of a real launch.
#[test]
fn shape_01_empty_shapes_and_empty_arguments_are_captured_and_replayed() {
    let Some(device) = device(1) else { return };
    let k = Kernels::<u32>::load(&device);
    let allocations = subject::calls_of(&device, Call::Allocate);
    drop(device.stream().unwrap().alloc::<u32>(0).unwrap());
    assert_eq!(subject::calls_of(&device, Call::Allocate), allocations, "no bytes, no allocation");
    let count = zoo::add_count().load(&device).unwrap();
    let mut s = device.stream().unwrap();
    let (mut n, mut y) = (s.alloc::<u32>(1).unwrap(), s.alloc::<u32>(0).unwrap());
    let captured = s.alloc::<u32>(0).unwrap();
    let (mut graph, born) = s
        .capture(|w| {
            let born = w.alloc::<u32>(0)?;
            w.launch(&k.add1, Grid::covering((1, 0)), (&captured, &mut y, Len, Len))?;
            w.launch(&k.add1, Grid::covering((0, 1)), (&captured, &mut y, Len, Len))?;
            w.launch(&k.add1, Grid::covering((2, 0, 3)), (&captured, &mut y, Len, Len))?;
            w.launch(&count, Grid::covering(1), (&captured, &mut n, Len, Len))?;
            w.launch(&count, Grid::covering(1), (&born, &mut n, Len, Len))?;
            Ok(born)
        })
        .unwrap();
    assert_eq!(graph.nodes(), 2);
    drop(captured);
    graph.replay(&mut s).unwrap();
    assert_eq!(s.read(&n).unwrap(), [4]);
    assert_eq!(s.read(&born).unwrap(), [0u32; 0]);
    let (mut graph, mut round) = s.record(|w| w.alloc::<u32>(N)).unwrap();
    graph.replay(&mut s).unwrap();
    s.write(&mut round, &[6; N]).unwrap();
    assert_eq!(s.read(&round).unwrap(), [6; N]);
}

/// A driver that rejects an empty grid poisons its stream until a later, unrelated read.
#[test]
fn shape_02_a_grid_with_a_zero_launches_nothing() {
    let Some(device) = device(1) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut s = device.stream().unwrap();
    let mut c = s.alloc::<u32>(N).unwrap();
    let launches = subject::calls_of(&device, Call::Launch);
    for dims in [(0, 1, 1), (1, 0, 1), (1, 1, 0), (0, 0, 0), (N, N, 0)] {
        s.launch(&k.inc, Grid::covering(dims), (&mut c, Len)).unwrap();
        s.launch(&k.inc, Grid::blocks(dims), (&mut c, Len)).unwrap();
        s.sync().unwrap();
    }
    assert_eq!(subject::calls_of(&device, Call::Launch), launches);
    assert_eq!(s.read(&c).unwrap(), [0; N]);
    let (mut graph, ()) = s
        .record(|w| {
            w.launch(&k.inc, grid(), (&mut c, Len))?;
            w.launch(&k.inc, Grid::covering((N, 0)), (&mut c, Len))?;
            w.launch(&k.inc, grid(), (&mut c, Len))
        })
        .unwrap();
    assert_eq!(graph.nodes(), 2);
    graph.replay(&mut s).unwrap();
    s.sync().unwrap();
    assert_eq!(s.read(&c).unwrap(), [2; N]);
}

/// The sizes of SHAPE-04, in bytes.
const ODD: [usize; 6] = [1, 2, 3, 5, 31, 1543];

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

/// Alignment to a word, rounded up in a copy, reaches into what lies behind.
#[test]
fn shape_04_odd_sizes_are_written_copied_and_read_to_the_byte() {
    let Some(device) = device(1) else { return };
    let copy = zoo::copy::<u8>().load(&device).unwrap();
    let mut s = device.stream().unwrap();
    for len in ODD {
        let (mut x, mut y) = (s.alloc::<u8>(len).unwrap(), s.alloc::<u8>(len).unwrap());
        let mut z = s.alloc::<u8>(len).unwrap();
        let data = pattern(len, 1);
        s.write(&mut x, &data).unwrap();
        s.launch(&copy, Grid::covering(len), (&x, &mut y, Len, Len)).unwrap();
        s.copy(&y, &mut z).unwrap();
        assert_eq!(s.read(&z).unwrap(), data, "{len}");
        let (mut graph, out) = s
            .record(|w| {
                let mut t = w.alloc::<u8>(len)?;
                let mut out = w.alloc::<u8>(len)?;
                w.launch(&copy, Grid::covering(len), (&x, &mut t, Len, Len))?;
                w.copy(&t, &mut out)?;
                Ok(out)
            })
            .unwrap();
        for seed in [2, 3] {
            s.write(&mut x, pattern(len, seed)).unwrap();
            graph.replay(&mut s).unwrap();
            assert_eq!(s.read(&out).unwrap(), pattern(len, seed), "{len}");
        }
    }
}

/// Buffers that follow each other in one page, each written, copied into and replayed into in turn: what rounds a size
/// up to a word reaches into the next one.
#[test]
fn shape_04_neighbouring_buffers_of_one_page_keep_their_bytes() {
    let Some(device) = device(1) else { return };
    let copy = zoo::copy::<u8>().load(&device).unwrap();
    let mut s = device.stream().unwrap();
    let mut all: Vec<Buffer<u8>> = ODD.into_iter().map(|len| s.alloc(len).unwrap()).collect();
    let mut expected: Vec<Vec<u8>> = ODD.into_iter().map(|len| vec![0; len]).collect();
    let source = |s: &mut Stream, len: usize, seed: u8| {
        let mut x = s.alloc::<u8>(len).unwrap();
        s.write(&mut x, pattern(len, seed)).unwrap();
        x
    };
    for (at, len) in ODD.into_iter().enumerate() {
        for turn in 0..4u8 {
            let seed = 10 * at as u8 + turn;
            let from = source(&mut s, len, seed);
            match turn {
                0 => s.write(&mut all[at], pattern(len, seed)).unwrap(),
                1 => s.copy(&from, &mut all[at]).unwrap(),
                2 => s.launch(&copy, Grid::covering(len), (&from, &mut all[at], Len, Len)).unwrap(),
                _ => {
                    let step = |w: &mut Work<'_>| w.write(&mut all[at], pattern(len, seed));
                    let (mut graph, ()) = s.record(step).unwrap();
                    graph.replay(&mut s).unwrap();
                }
            }
            expected[at] = pattern(len, seed);
            for (buffer, expected) in all.iter().zip(&expected) {
                assert_eq!(&s.read(buffer).unwrap(), expected, "{len} bytes, turn {turn}");
            }
        }
    }
}

/// Slices that follow each other without a gap, written in turn: nobody's padding is somebody else's data.
#[test]
fn shape_04_neighbouring_slices_of_one_page_keep_their_bytes() {
    let Some(device) = device(1) else { return };
    let copy = zoo::copy::<u8>().load(&device).unwrap();
    let mut s = device.stream().unwrap();
    let total: usize = ODD.iter().sum();
    let mut whole = s.alloc::<u8>(total).unwrap();
    let mut source = s.alloc::<u8>(total).unwrap();
    s.write(&mut source, pattern(total, 9)).unwrap();
    let mut expected = vec![0; total];
    let mut at = 0;
    for (turn, len) in ODD.into_iter().enumerate() {
        let range = at..at + len;
        s.write(whole.slice_mut(range.clone()).unwrap(), pattern(len, turn as u8)).unwrap();
        expected[range.clone()].copy_from_slice(&pattern(len, turn as u8));
        assert_eq!(s.read(&whole).unwrap(), expected, "{range:?}");
        at += len;
    }
    at = 0;
    for len in ODD {
        let range = at..at + len;
        let (from, to) = (source.slice(range.clone()).unwrap(), whole.slice_mut(range.clone()).unwrap());
        let (mut graph, ()) =
            s.record(|w| w.launch(&copy, Grid::covering(len), (from, to, Len, Len))).unwrap();
        assert_eq!(s.read(&whole).unwrap(), expected, "a recording writes nothing");
        graph.replay(&mut s).unwrap();
        expected[range.clone()].copy_from_slice(&pattern(total, 9)[range.clone()]);
        assert_eq!(s.read(&whole).unwrap(), expected, "{range:?}");
        at += len;
    }
}

/// More blocks than sixteen bits can number: what is cut off there is left as it was, or done twice. Where a line of them
/// may not be so long, that is said, and several lines reach every element.
#[test]
fn shape_05_grids_of_more_blocks_than_a_short_number_holds_reach_every_element_once() {
    const BLOCK: usize = 256;
    let Some(device) = device(1) else { return };
    let visit = zoo::visit().load(&device).unwrap();
    let mut s = device.stream().unwrap();
    for len in [65_535 * BLOCK, 65_536 * BLOCK, 52_428_800] {
        let mut c = s.alloc::<u8>(len).unwrap();
        let mut grid = Grid::covering(len);
        let blocks = len / BLOCK;
        if blocks > subject::MOST_BLOCKS {
            let error = refused(s.launch(&visit, grid, (&mut c, Len)));
            let Error::Limit { limit: GridLimit::BlocksX, requested, allowed, .. } = error else {
                panic!("{error}");
            };
            assert_eq!((requested, allowed), (blocks as u64, subject::MOST_BLOCKS as u64));
            s.fill(&mut c, 0).unwrap();
            grid = Grid::blocks((subject::MOST_BLOCKS, blocks.div_ceil(subject::MOST_BLOCKS)));
        }
        s.launch(&visit, grid, (&mut c, Len)).unwrap();
        assert!(s.read(&c).unwrap() == vec![1; len], "{len} elements, eager");
        let (mut graph, ()) = s.record(|w| w.launch(&visit, grid, (&mut c, Len))).unwrap();
        graph.replay(&mut s).unwrap();
        assert!(s.read(&c).unwrap() == vec![2; len], "{len} elements, recorded");
    }
}

/// A limit that shows at the first replay is found too late to do anything about it.
#[test]
fn shape_05_a_grid_beyond_a_limit_is_refused_at_its_launch_and_fails_the_window_that_it_is_in() {
    let Some(device) = device(1) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut s = device.stream().unwrap();
    let mut c = s.alloc::<u32>(N).unwrap();
    for (dims, limit) in [((1, 65_536, 1), GridLimit::BlocksY), ((1, 1, 65_536), GridLimit::BlocksZ)] {
        let named = |error: &Error| match error {
            Error::Limit { limit: named, requested: 65_536, allowed: 65_535, .. } => *named == limit,
            _ => false,
        };
        let error = refused(s.launch(&k.inc, Grid::blocks(dims), (&mut c, Len)));
        assert!(named(&error), "{error}");
        let error = refused(s.record(|w| {
            let _ = w.launch(&k.inc, Grid::blocks(dims), (&mut c, Len));
            Ok(())
        }));
        assert!(named(&error), "{error}");
        s.fill(&mut c, 0).unwrap();
    }
    s.launch(&k.inc, Grid::blocks((1, 65_535, 1)), (&mut c, Len)).unwrap();
    assert_eq!(s.read(&c).unwrap(), [1; N]);
}
