//! Who owns the bytes of a write, and for how long: cases HOST-01 and 02, SHAPE-04, and E02.

use std::sync::Arc;

use super::subject::calls_of;
use super::support::*;
use super::{kernels, zoo};
use dacapo::{Call, Result};

/// The staging slot of an upload inside a window was recycled, so that the next replay copied somebody else's bytes.
#[test]
fn host_01_every_replay_writes_the_bytes_of_the_recording() {
    let Some(device) = device(2) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut s = device.stream().unwrap();
    let (mut input, mut out) = (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(N).unwrap());
    let mut other = s.alloc::<u32>(N).unwrap();
    // The bytes are the graph's as soon as the call returns, so that the source may go.
    let mut source: Vec<u32> = (0..N as u32).collect();
    let recorded = |w: &mut Work<'_>| {
        w.write(&mut input, &source)?;
        source.fill(u32::MAX);
        source = Vec::new();
        w.launch(&k.add1, Grid::covering(N), (&input, &mut out, Len, Len))
    };
    let (mut graph, ()) = s.record(recorded).unwrap();
    let expected: Vec<u32> = (1..=N as u32).collect();
    for round in 0..3 {
        for n in 0..100 {
            s.write(&mut other, &[round * 1000 + n; N]).unwrap();
        }
        s.memory_cleanup().unwrap();
        graph.replay(&mut s).unwrap();
        assert_eq!(s.read(&out).unwrap(), expected, "round {round}");
    }
}

/// A graph that drew on the pinned pool would leave none of it to the transfers of the next week.
#[test]
fn host_01_what_a_graph_owns_is_neither_of_the_pinned_pool_nor_pending() {
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    s.sync().unwrap();
    let held = || (device.memory_usage(), device.memory_report().staging.held, calls_of(&device, Call::Pin));
    let before = held();
    let (mut graph, ()) = s
        .record(|w| (0..1000).try_for_each(|n| w.write(x.slice_mut(n % N..n % N + 1)?, &[n as u32])))
        .unwrap();
    graph.replay(&mut s).unwrap();
    s.sync().unwrap();
    assert_eq!(held(), before);
    assert_eq!(s.read(&x).unwrap()[999 % N], 999);
}

/// Pageable copies hid that the source was gone; pinned ones are read by the device, later.
#[test]
fn host_02_a_write_takes_the_bytes_as_they_are_at_its_call() {
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
    let (mut b, mut b2) = (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(N).unwrap());
    let gate = Gate::close(&mut s);
    let mut source = vec![1u32; N];
    s.write(&mut b, &source).unwrap();
    source.fill(2);
    drop(source);
    s.write(&mut b2, &[3; N]).unwrap();
    assert!(is_held_up(&mut s));
    gate.open();
    assert_eq!(s.read(&b).unwrap(), [1; N]);
    assert_eq!(s.read(&b2).unwrap(), [3; N]);
}

/// Large data that was handed over made its call wait for the stream, under a lock that others need.
#[test]
fn host_02_data_handed_over_makes_no_call_wait_whatever_its_size() {
    let Some(device) = device(1) else { return };
    let (mut s, mut neighbour) = (device.stream().unwrap(), device.stream().unwrap());
    for len in [N, 16 << 10, (16 << 10) + 1, LARGE, 5_000_000] {
        let (mut b, mut b2) = (s.alloc::<u32>(len).unwrap(), neighbour.alloc::<u32>(1).unwrap());
        s.sync().unwrap();
        let gate = Gate::close(&mut s);
        let data: Arc<[u32]> = (0..len as u32).collect();
        s.write(&mut b, data.clone()).unwrap();
        // The same slot: what the write above holds, this one waits for.
        neighbour.write(&mut b2, &[3]).unwrap();
        gate.open();
        assert!(s.read(&b).unwrap()[..] == data[..], "{len} elements");
        assert_eq!(neighbour.read(&b2).unwrap(), [3]);
        assert!(eventually(|| {
            s.sync().unwrap();
            Arc::strong_count(&data) == 1
        }));
    }
}

/// An upload from a `Vec` inside a window kept its raw pointer, and a replay read freed memory.
#[test]
fn e02_data_handed_over_in_a_window_belongs_to_the_graph() {
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    let token: Arc<[u32]> = vec![7; N].into();
    let (mut graph, ()) = s.record(|w| w.write(&mut x, token.clone())).unwrap();
    assert_eq!(Arc::strong_count(&token), 2, "not a copy");
    for _ in 0..2 {
        s.fill(&mut x, 0).unwrap();
        graph.replay(&mut s).unwrap();
        assert_eq!(s.read(&x).unwrap(), [7; N]);
    }
    drop(graph);
    assert!(eventually(|| Arc::strong_count(&token) == 1), "the graph is gone, and its bytes are not");
}

/// Data that was handed over must outlive its call, and no longer than the device needs it.
#[test]
fn data_handed_over_is_kept_as_it_is_until_the_device_has_it() {
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    let data: Arc<[u32]> = vec![9; N].into();
    let pinned = || (device.memory_report().staging.held, calls_of(&device, Call::Pin));
    let before = pinned();
    let gate = Gate::close(&mut s);
    s.write(&mut x, data.clone()).unwrap();
    assert_eq!(pinned(), before);
    assert_eq!(device.memory_usage().pending_host, N * 4);
    assert_eq!(Arc::strong_count(&data), 2);
    gate.open();
    s.sync().unwrap();
    assert_eq!(Arc::strong_count(&data), 1);
    assert_eq!(device.memory_usage().pending_host, 0);
    assert_eq!(s.read(&x).unwrap(), [9; N]);
}

/// One type of source that is copied short, or read at the wrong alignment, is a silent corruption.
#[test]
fn every_kind_of_host_data_is_written_in_full() {
    fn written<D: dacapo::HostData<u32>>(s: &mut Stream, data: D) {
        let mut x = s.alloc::<u32>(3).unwrap();
        s.write(&mut x, data).unwrap();
        assert_eq!(s.read(&x).unwrap(), [1, 2, 3], "{}", std::any::type_name::<D>());
    }
    let Some(device) = device(1) else { return };
    let s = &mut device.stream().unwrap();
    let mut array = [1u32, 2, 3];
    let mut vec = array.to_vec();
    let (slice, boxed, shared) = (&array[..], Box::<[u32]>::from(array), Arc::<[u32]>::from(array));
    let shared_vec = Arc::new(vec.clone());
    written(s, slice);
    written(s, &array);
    written(s, &vec);
    written::<&&[u32]>(s, &slice);
    written::<&Box<[u32]>>(s, &boxed);
    written::<&Arc<[u32]>>(s, &shared);
    written(s, &shared_vec);
    written(s, &mut array[..]);
    written(s, &mut array);
    written(s, &mut vec);
    written(s, vec);
    written(s, boxed);
    written(s, shared);
}

/// A refused write must not keep what it was given.
#[test]
fn a_write_of_another_length_lets_go_of_its_data_and_names_both() {
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    let data: Arc<[u32]> = vec![9; N + 1].into();
    let error = refused(s.write(&mut x, data.clone()));
    assert!(error.to_string().contains("65") && error.to_string().contains("64"), "{error}");
    assert_eq!((Arc::strong_count(&data), device.memory_usage().pending_host), (1, 0));
    assert_tainted(&mut s, &x, &error);
    let fits: Arc<[u32]> = vec![9; N].into();
    s.write(&mut x, fits).unwrap();
    assert_eq!(s.read(&x).unwrap(), [9; N]);
}

/// Buffers of bytes with one byte between the odd parts of them.
struct Odd {
    from: Buffer<u8>,
    to: Buffer<u8>,
}

const SIZES: [usize; 6] = [1, 2, 3, 5, 31, 1543];

fn pattern(n: usize, size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 7 + n * 31 + 1) as u8).collect()
}

fn odd_step(w: &mut impl Enqueue<Subject>, k: &Kernel<zoo::Map<u8>>, x: &mut Odd) -> Result<()> {
    let mut at = 0;
    for (n, size) in SIZES.into_iter().enumerate() {
        let part = at..at + size;
        w.write(x.from.slice_mut(part.clone())?, pattern(n, size))?;
        let (from, to) = (x.from.slice(part.clone())?, x.to.slice_mut(part)?);
        w.launch(k, Grid::covering(size), (from, to, Len, Len))?;
        at += size + 1;
    }
    Ok(())
}

/// Mapping and copying in units of four bytes wrote beyond odd ranges.
#[test]
fn shape_04_odd_sizes_are_exact_and_their_neighbours_untouched() {
    let Some(device) = device(1) else { return };
    let copy = kernels::copy().load(&device).unwrap();
    let mut s = device.stream().unwrap();
    let total = SIZES.iter().sum::<usize>() + SIZES.len();
    let mut expected = vec![0xAA; total];
    let mut at = 0;
    for (n, size) in SIZES.into_iter().enumerate() {
        expected[at..at + size].copy_from_slice(&pattern(n, size));
        at += size + 1;
    }
    let mut x = Odd { from: s.alloc(total).unwrap(), to: s.alloc(total).unwrap() };
    s.fill(&mut x.from, 0xAA).unwrap();
    s.fill(&mut x.to, 0xAA).unwrap();
    odd_step(&mut s, &copy, &mut x).unwrap();
    assert_eq!(s.read(&x.to).unwrap(), expected);
    let (mut graph, ()) = s.record(|w| odd_step(w, &copy, &mut x)).unwrap();
    s.fill(&mut x.from, 0xAA).unwrap();
    s.fill(&mut x.to, 0xAA).unwrap();
    graph.replay(&mut s).unwrap();
    assert_eq!(s.read(&x.from).unwrap(), expected);
    assert_eq!(s.read(&x.to).unwrap(), expected);
    let mut at = 0;
    for (n, size) in SIZES.into_iter().enumerate() {
        let mut into = vec![0; size];
        s.read_into(x.to.slice(at..at + size).unwrap(), &mut into).unwrap();
        assert_eq!(into, pattern(n, size));
        at += size + 1;
    }
}

/// The device outlives what is dropped around a write in flight, and the other way round.
#[test]
fn a_write_in_flight_may_lose_its_buffer_its_stream_and_its_device() {
    let data: Arc<[u32]> = vec![9; N].into();
    let large: Arc<[u32]> = vec![9; LARGE].into();
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
    let (mut x, mut y) = (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(LARGE).unwrap());
    s.sync().unwrap();
    let gate = Gate::close(&mut s);
    s.write(&mut x, data.clone()).unwrap();
    s.write(&mut x, &[4; N]).unwrap();
    s.write(&mut y, large.clone()).unwrap();
    drop((x, y, s, device));
    gate.open();
    let let_go = || Arc::strong_count(&data) == 1 && Arc::strong_count(&large) == 1;
    assert!(eventually(let_go), "the bytes of a write were leaked");
}
