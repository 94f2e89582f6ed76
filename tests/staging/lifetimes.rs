//! Who owns the bytes of a write, and for how long.

use std::sync::Arc;

use dacapo::prelude::*;
use dacapo::{DeviceOptions, Result};

use crate::support_objects::*;

/// The staging slot of an upload inside a window was recycled, so that the next replay copied somebody else's bytes.
#[test]
fn host_01_every_replay_writes_the_bytes_of_the_recording() {
    let device = device(2);
    let k = Kernels::load(&device);
    let mut s = device.stream().unwrap();
    let (mut input, mut out) = (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(N).unwrap());
    let mut other = s.alloc::<u32>(N).unwrap();
    // The bytes are the graph's as soon as the call returns, so that the source may go.
    let mut source: Vec<u32> = (0..N as u32).collect();
    let recorded = |w: &mut dacapo::Work<'_>| {
        w.write(&mut input, &source)?;
        source.fill(u32::MAX);
        source = Vec::new();
        w.launch(&k.add1, grid(), (&input, &mut out))
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
fn host_01_what_a_graph_owns_is_neither_pinned_nor_pending() {
    let device = device(1);
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    s.sync().unwrap();
    let before = (device.memory_usage(), device.faults().count(dacapo::Call::Pin));
    let (mut graph, ()) = s
        .record(|w| (0..1000).try_for_each(|n| w.write(x.slice_mut(n % N..n % N + 1)?, &[n as u32])))
        .unwrap();
    graph.replay(&mut s).unwrap();
    s.sync().unwrap();
    assert_eq!((device.memory_usage(), device.faults().count(dacapo::Call::Pin)), before);
    assert_eq!(s.read(&x).unwrap()[999 % N], 999);
}

/// Pageable copies hid that the source was gone; pinned ones are read by the device, later.
#[test]
fn host_02_a_write_takes_the_bytes_as_they_are_at_its_call() {
    let (device, stepper) = stepped(1);
    let mut s = device.stream().unwrap();
    let (mut b, mut b2) = (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(N).unwrap());
    let hold = stepper.hold();
    let mut source = vec![1u32; N];
    s.write(&mut b, &source).unwrap();
    source.fill(2);
    drop(source);
    s.write(&mut b2, &[3; N]).unwrap();
    drop(hold);
    assert_eq!(s.read(&b).unwrap(), [1; N]);
    assert_eq!(s.read(&b2).unwrap(), [3; N]);
}

/// An upload from a `Vec` inside a window kept its raw pointer, and a replay read freed memory.
#[test]
fn e02_data_handed_over_in_a_window_belongs_to_the_graph() {
    let device = device(1);
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
    eventually(|| Arc::strong_count(&token) == 1, || "the graph is gone, and its bytes are not".to_owned());
}

/// Data that was handed over must outlive its call, and no longer than the device needs it.
#[test]
fn data_handed_over_is_kept_as_it_is_until_the_device_has_it() {
    let (device, stepper) = stepped(1);
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    let data: Arc<[u32]> = vec![9; N].into();
    let pins = device.faults().count(dacapo::Call::Pin);
    s.write(&mut x, data.clone()).unwrap();
    assert_eq!(device.faults().count(dacapo::Call::Pin), pins);
    assert_eq!(device.memory_usage().pending_host, N * 4);
    assert_eq!(Arc::strong_count(&data), 2);
    stepper.run_all();
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
    let s = &mut device(1).stream().unwrap();
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

/// A refused write must not keep what it was given, and its memory must not become the device's.
#[test]
fn a_write_that_is_refused_lets_go_of_its_data() {
    let device = device(1);
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    let data: Arc<[u32]> = vec![9; N + 1].into();
    let error = refused(s.write(&mut x, data.clone()));
    assert!(error.to_string().contains("65") && error.to_string().contains("64"), "{error}");
    assert_eq!(Arc::strong_count(&data), 1);
    device.faults().fail_nth(dacapo::Call::Write, 1, dacapo::host::Severity::Call);
    let fits: Arc<[u32]> = vec![9; N].into();
    let error = refused(s.write(&mut x, fits.clone()));
    assert_tainted(&mut s, &x, &error);
    assert_eq!((Arc::strong_count(&fits), device.memory_usage().pending_host), (1, 0));
    s.write(&mut x, fits).unwrap();
    assert_eq!(s.read(&x).unwrap(), [9; N]);
}

/// Mapping and copying in units of four bytes wrote beyond odd ranges.
#[test]
fn shape_04_odd_sizes_are_exact_and_their_neighbours_untouched() {
    fn step(w: &mut impl Enqueue<Host>, k: &Kernel<(In<u8>, Out<u8>)>, x: &mut Odd) -> Result<()> {
        let mut at = 0;
        for (n, size) in SIZES.into_iter().enumerate() {
            w.write(x.from.slice_mut(at..at + size)?, pattern(n, size))?;
            w.launch(
                k,
                Grid::covering(size),
                (x.from.slice(at..at + size)?, x.to.slice_mut(at..at + size)?),
            )?;
            at += size + 1;
        }
        Ok(())
    }
    struct Odd {
        from: Buffer<u8>,
        to: Buffer<u8>,
    }
    const SIZES: [usize; 6] = [1, 2, 3, 5, 31, 1543];
    fn pattern(n: usize, size: usize) -> Vec<u8> {
        (0..size).map(|at| (at * 7 + n * 31 + 1) as u8).collect()
    }
    let device = device(1);
    let copy = Program::<(In<u8>, Out<u8>)>::new("copy").host(|(x, y), _| y.copy_from_slice(x));
    let copy = copy.load(&device).unwrap();
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
    step(&mut s, &copy, &mut x).unwrap();
    assert_eq!(s.read(&x.to).unwrap(), expected);
    let (mut graph, ()) = s.record(|w| step(w, &copy, &mut x)).unwrap();
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
    for _ in 0..2 {
        let (device, stepper) = Device::<Host>::stepped(DeviceOptions::new()).unwrap();
        let mut s = device.stream().unwrap();
        let mut x = s.alloc::<u32>(N).unwrap();
        s.write(&mut x, data.clone()).unwrap();
        s.write(&mut x, &[4; N]).unwrap();
        drop((x, s, device, stepper));
    }
    assert_let_go_of(&data);
}

fn assert_let_go_of(data: &Arc<[u32]>) {
    eventually(|| Arc::strong_count(data) == 1, || "the bytes of a write were leaked".to_owned());
}
