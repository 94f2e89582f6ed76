//! Bytes to the device, on it, and back.

use dacapo::{Element, Layout};

use super::support::*;

const SIZES: [usize; 8] = [0, 1, 3, 255, 256, 1025, 65_537, 1_000_003];

#[test]
fn what_is_written_is_read_back_in_every_size() {
    let Some((device, _)) = working(4) else { return };
    let mut stream = device.stream().unwrap();
    for size in SIZES {
        let data: Vec<u8> = (0..size).map(|n| (n * 7 + 1) as u8).collect();
        let mut x = stream.alloc_scratch::<u8>(size).unwrap();
        stream.write(&mut x, &data).unwrap();
        assert_eq!(stream.read(&x).unwrap(), data, "lent, {size}");
        let mut y = stream.alloc_scratch::<u8>(size).unwrap();
        stream.copy(&x, &mut y).unwrap();
        let mut into = vec![0; size];
        stream.read_into(&y, &mut into).unwrap();
        assert_eq!(into, data, "copied, {size}");
        let reversed: Vec<u8> = data.iter().rev().copied().collect();
        stream.write(&mut y, reversed.clone()).unwrap();
        assert_eq!(block_on(stream.read_async(&y).unwrap()).unwrap(), reversed, "handed over, {size}");
    }
}

#[test]
fn fresh_memory_reads_as_zero_also_when_somebody_had_it_before() {
    let Some((device, _)) = working(4) else { return };
    let mut stream = device.stream().unwrap();
    for round in 0..3 {
        for size in SIZES {
            let mut x = stream.alloc::<u8>(size).unwrap();
            assert!(stream.read(&x).unwrap().iter().all(|byte| *byte == 0), "{size} in round {round}");
            stream.fill(&mut x, 0xEE).unwrap();
        }
    }
}

#[test]
fn odd_slices_are_written_copied_and_read_without_their_neighbours() {
    let Some((device, _)) = working(4) else { return };
    let mut stream = device.stream().unwrap();
    let mut expected: Vec<u8> = (0..1000).map(|n| n as u8).collect();
    let mut x = stream.alloc_scratch::<u8>(1000).unwrap();
    stream.write(&mut x, &expected).unwrap();
    stream.write(x.slice_mut(3..10).unwrap(), &[9; 7]).unwrap();
    expected[3..10].fill(9);
    let (left, right) = x.split_at_mut(501).unwrap();
    stream.copy(left.as_slice().slice(1..78).unwrap(), right.into_range(5..82).unwrap()).unwrap();
    expected.copy_within(1..78, 506);
    assert_eq!(stream.read(&x).unwrap(), expected);
    assert_eq!(stream.read(x.slice(507..511).unwrap()).unwrap(), expected[507..511]);
}

fn fills<T: Element + PartialEq + std::fmt::Debug>(stream: &mut Stream, value: T, other: T) {
    for (len, from, to) in [(1, 0, 1), (7, 0, 7), (7, 3, 6), (1000, 1, 1000), (4099, 5, 4001)] {
        let mut expected = vec![other; len];
        let mut x = stream.alloc_scratch::<T>(len).unwrap();
        stream.write(&mut x, &expected).unwrap();
        stream.fill(x.slice_mut(from..to).unwrap(), value).unwrap();
        expected[from..to].fill(value);
        let bytes = size_of::<T>();
        assert_eq!(stream.read(&x).unwrap(), expected, "eager: {from}..{to} of {len}, {bytes} bytes each");
        stream.write(&mut x, &vec![other; len]).unwrap();
        let (mut graph, ()) = stream.record(|work| work.fill(x.slice_mut(from..to)?, value)).unwrap();
        graph.replay(stream).unwrap();
        assert_eq!(stream.read(&x).unwrap(), expected, "recorded: {from}..{to} of {len}, {bytes} bytes each");
    }
}

/// The driver sets 1, 2 and 4 bytes at their own multiples; every other pattern is a kernel's.
#[test]
fn patterns_of_every_size_fill_exactly_their_slice() {
    let Some((device, _)) = working(4) else { return };
    let mut stream = device.stream().unwrap();
    fills(&mut stream, 0xABu8, 1);
    fills(&mut stream, [1u8, 2], [3, 4]);
    fills(&mut stream, [1u8, 2, 3], [4, 5, 6]);
    fills(&mut stream, 0x1234u16, 7);
    fills(&mut stream, 1.5f32, -2.0);
    fills(&mut stream, 1.1f64, -2.0);
    fills(&mut stream, 0x0101_0101_0101_0101u64, 5);
    fills(&mut stream, [1u16, 2, 3], [0; 3]);
    fills(&mut stream, [1.0f32, 2.0, 3.0], [0.0; 3]);
    let long: [u32; 601] = std::array::from_fn(|n| n as u32 * 77 + 1);
    fills(&mut stream, long, [9; 601]);
    let odd: [u8; 1027] = std::array::from_fn(|n| (n * 3 + 1) as u8);
    fills(&mut stream, odd, [9; 1027]);
}

fn pitched(stream: &mut Stream, shape: &[usize], pitch: usize) {
    let layout = Layout::pitched(shape, pitch).unwrap();
    let data: Vec<u16> = (0..layout.len() as u16).map(|n| n.wrapping_mul(7) + 1).collect();
    let columns = *shape.last().unwrap();
    let mut expected = vec![0xAAAA; layout.span() + 2];
    for (row, elements) in data.chunks(columns.max(1)).enumerate() {
        expected[1 + row * pitch..][..columns].copy_from_slice(elements);
    }
    let (mut x, end) = (stream.alloc_scratch::<u16>(expected.len()).unwrap(), 1 + layout.span());
    stream.fill(&mut x, 0xAAAA).unwrap();
    stream.write_pitched(x.slice_mut(1..end).unwrap(), &layout, &data).unwrap();
    assert_eq!(stream.read(&x).unwrap(), expected, "{shape:?} by {pitch}");
    assert_eq!(stream.read_pitched(x.slice(1..).unwrap(), &layout).unwrap(), data);
    let record = stream.record(|work| work.write_pitched(x.slice_mut(1..end)?, &layout, &data));
    let (mut graph, ()) = record.unwrap();
    stream.fill(&mut x, 0xAAAA).unwrap();
    graph.replay(stream).unwrap();
    assert_eq!(stream.read(&x).unwrap(), expected, "recorded, {shape:?} by {pitch}");
}

#[test]
fn padded_rows_are_exact_and_their_padding_untouched() {
    let Some((device, _)) = working(4) else { return };
    let mut stream = device.stream().unwrap();
    for (shape, padding) in
        [([2, 3, 1], 0), ([2, 3, 1], 1), ([3, 1, 5], 2), ([2, 2, 1543], 3), ([0, 2, 3], 1)]
    {
        pitched(&mut stream, &shape, shape[2] + padding);
    }
}

/// Without pinned memory everything goes through the heap, which the driver has ways of its own for.
#[test]
fn transfers_without_pinned_memory_are_right() {
    let Some((device, kernels)) = working_with(DeviceOptions::new().staging_limit(0)) else { return };
    let mut stream = device.stream().unwrap();
    for size in [1, 1000, 300_000] {
        let mut x = stream.alloc_scratch::<f32>(size).unwrap();
        stream.write(&mut x, ramp(size)).unwrap();
        stream.launch(&kernels.inc, Grid::covering(size), (&mut x, Len)).unwrap();
        let expected: Vec<f32> = ramp(size).iter().map(|x| x + 1.0).collect();
        assert_eq!(stream.read(&x).unwrap(), expected);
    }
}

/// A read that landed late would hand out the bytes of the transfer before it.
#[test]
fn many_reads_in_flight_land_each_with_its_own_bytes() {
    let Some((device, kernels)) = working(4) else { return };
    let mut streams = [(); 3].map(|()| device.stream().unwrap());
    let mut x = streams[0].alloc::<f32>(10_000).unwrap();
    let futures: Vec<_> = (0..300)
        .map(|n| {
            let stream = &mut streams[n % 3];
            stream.launch(&kernels.inc, Grid::covering(10_000), (&mut x, Len)).unwrap();
            stream.read_async(&x).unwrap()
        })
        .collect();
    for (n, future) in futures.into_iter().enumerate() {
        assert!(block_on(future).unwrap().iter().all(|x| *x == n as f32 + 1.0), "read {n}");
    }
}
