//! Host memory in flight has a bound, whatever the stream does: cases HOST-04 and WGPU-08.

use super::subject::calls_of;
use super::support::*;
use super::zoo;
use dacapo::Call;

/// What a write of a few elements keeps: the smallest block that is pinned.
const BLOCK: usize = 1 << 10;

fn limited(items: usize, bytes: usize) -> DeviceOptions {
    DeviceOptions::new().max_streams(1).pending_limit(items, bytes)
}

/// How much host memory is pinned for transfers, whether they are in flight or not.
fn pinned(device: &Device) -> usize {
    device.memory_report().staging.held
}

/// Thresholds that only launches checked let a burst of writes pile up without end.
#[test]
fn host_04_a_burst_of_writes_keeps_no_more_than_the_limit_and_one_item() {
    for (items, bytes) in [(4, 1 << 30), (1 << 20, 3 * BLOCK)] {
        let most = (items + 1).min(bytes / BLOCK + 1) * BLOCK;
        let Some(device) = open(limited(items, bytes)) else { return };
        let mut s = device.stream().unwrap();
        let mut x = s.alloc::<u32>(N).unwrap();
        for n in 0..10_000 {
            s.write(&mut x, &[n; N]).unwrap();
            assert!(device.memory_usage().pending_host <= most, "after write {n}");
        }
        assert!(pinned(&device) <= most + BLOCK, "{} bytes are pinned", pinned(&device));
        assert!(calls_of(&device, Call::Pin).is_none_or(|pins| pins <= (most / BLOCK + 1) as u64));
        assert_eq!(s.read(&x).unwrap(), [9_999; N]);
    }
}

/// The bound is the slot's, and threads that share one add an item each.
#[test]
fn host_04_threads_that_share_a_slot_stay_within_the_limit_and_one_item_each() {
    const THREADS: u32 = 4;
    let Some(device) = open(limited(4, usize::MAX)) else { return };
    let most = (4 + THREADS as usize) * BLOCK;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let device = &device;
            scope.spawn(move || {
                let mut s = device.stream().unwrap();
                let mut x = s.alloc::<u32>(N).unwrap();
                for n in 0..1000 {
                    s.write(&mut x, &[thread * 1000 + n; N]).unwrap();
                    assert!(device.memory_usage().pending_host <= most);
                }
                assert_eq!(s.read(&x).unwrap(), [thread * 1000 + 999; N]);
            });
        }
    });
}

/// A wait inside a window is what a capture must never meet; what the window keeps is the graph's.
#[test]
fn host_04_nothing_waits_for_room_and_nothing_piles_up_while_the_stream_records() {
    let Some(device) = open(limited(2, usize::MAX)) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    let gate = Gate::close(&mut s);
    (1..4).for_each(|n| s.write(&mut x, &[n; N]).unwrap());
    let mut recording = s.prepare().unwrap().begin().unwrap();
    let (calls, pending) = (subject::driver_calls(&device), device.memory_usage().pending_host);
    assert_eq!(pending, 3 * BLOCK);
    for n in 0..50 {
        // A wait for room would be one for the gate.
        recording.write(&mut x, &[n; N]).unwrap();
    }
    assert_eq!((subject::driver_calls(&device), device.memory_usage().pending_host), (calls, pending));
    gate.open();
    let (mut graph, mut s) = recording.end().unwrap();
    graph.replay(&mut s).unwrap();
    assert_eq!(s.read(&x).unwrap(), [49; N]);
    s.sync().unwrap();
    assert_eq!(device.memory_usage().pending_host, 0);
}

/// Reclaimed on poll only, what was never awaited filled the memory.
#[test]
fn wgpu_08_reads_that_nobody_awaits_stay_within_the_limit() {
    let Some(device) = open(limited(8, usize::MAX)) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    s.fill(&mut x, 5).unwrap();
    for n in 0..10_000 {
        drop(s.read_async(&x).unwrap());
        assert!(device.memory_usage().pending_host <= 9 * BLOCK, "after read {n}");
    }
    assert!(pinned(&device) <= 10 * BLOCK, "{} bytes are pinned", pinned(&device));
    assert!(calls_of(&device, Call::Pin).is_none_or(|pins| pins <= 10));
    assert_eq!(s.read(&x).unwrap(), [5; N]);
}

/// Nothing of a replay waits on the host, so that only the queue bounds how many are in flight.
#[test]
fn wgpu_08_replays_without_a_read_hold_no_host_memory() {
    let Some(device) = device(1) else { return };
    let inc = zoo::inc::<u32>().load(&device).unwrap();
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(1).unwrap();
    let (mut graph, ()) = s
        .record(|w| {
            w.write(&mut x, &[1])?;
            w.launch(&inc, Grid::covering(1), (&mut x, Len))
        })
        .unwrap();
    let before = device.memory_usage();
    for _ in 0..100_000 {
        graph.replay(&mut s).unwrap();
    }
    assert_eq!(device.memory_usage(), before);
    assert_eq!(s.read(&x).unwrap(), [2]);
}

/// What is bounded for each slot is not left behind by any of them.
#[test]
fn a_cleanup_lets_go_of_what_every_slot_has_passed_and_waits_for_none() {
    let Some(device) = device(4) else { return };
    let mut streams: Vec<_> = (0..4).map(|_| device.stream().unwrap()).collect();
    let mut buffers: Vec<_> = streams.iter_mut().map(|s| s.alloc::<u32>(N).unwrap()).collect();
    streams.iter_mut().for_each(|s| s.sync().unwrap());
    let gate = Gate::close(&mut streams[3]);
    for (s, x) in streams.iter_mut().zip(&mut buffers) {
        s.write(x, &[1; N]).unwrap();
    }
    assert!(device.memory_usage().pending_host >= BLOCK);
    // Nobody asks the other slots how far they have come.
    let mut left_after_a_cleanup = |expected| {
        eventually(|| {
            streams[2].memory_cleanup().unwrap();
            device.memory_usage().pending_host == expected
        })
    };
    assert!(left_after_a_cleanup(BLOCK), "what waits behind the gate, and that alone");
    gate.open();
    assert!(left_after_a_cleanup(0));
}
