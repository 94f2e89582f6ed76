//! Host memory in flight has a bound, whatever the stream does.

use dacapo::host::HostOptions;
use dacapo::prelude::*;
use dacapo::{Call, DeviceOptions};

use crate::support_objects::*;

/// What a write of a few elements keeps: the smallest block that is pinned.
const BLOCK: usize = 1 << 10;

fn limited(items: usize, bytes: usize) -> DeviceOptions {
    DeviceOptions::new().max_streams(1).pending_limit(items, bytes)
}

/// Thresholds that only launches checked let a burst of writes pile up without end.
#[test]
fn host_04_a_burst_of_writes_keeps_no_more_than_the_limit_and_one_item() {
    for (items, bytes) in [(4, 1 << 30), (1 << 20, 3 * BLOCK)] {
        let most = (items + 1).min(bytes / BLOCK + 1) * BLOCK;
        let device = Device::open(limited(items, bytes)).unwrap();
        let mut s = device.stream().unwrap();
        let mut x = s.alloc::<u32>(N).unwrap();
        for n in 0..10_000 {
            s.write(&mut x, &[n; N]).unwrap();
            assert!(device.memory_usage().pending_host <= most, "after write {n}");
        }
        assert!(device.faults().count(Call::Pin) <= most as u64 / BLOCK as u64 + 1);
        assert_eq!(s.read(&x).unwrap(), [9_999; N]);
    }
}

/// The same where nothing runs by itself: the wait runs what it needs, and no more.
#[test]
fn host_04_a_write_above_the_limit_waits_for_the_oldest_one_only() {
    let (device, stepper) = Device::<Host>::stepped(limited(3, usize::MAX)).unwrap();
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    stepper.run_all();
    for n in 0..4 {
        s.write(&mut x, &[n; N]).unwrap();
        assert_eq!(stepper.pending(s.id()), n as usize + 1, "below the limit nothing runs");
    }
    s.write(&mut x, &[4; N]).unwrap();
    assert_eq!((stepper.pending(s.id()), device.memory_usage().pending_host), (4, 4 * BLOCK));
    assert_eq!(s.read(&x).unwrap(), [4; N]);
}

/// Below the limit nobody waits, and what the device is done with must not stay until the limit is reached.
#[test]
fn a_stream_that_keeps_up_holds_no_more_than_is_in_flight() {
    let (device, stepper) = Device::<Host>::stepped(DeviceOptions::new().max_streams(1)).unwrap();
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    for n in 0..100 {
        s.write(&mut x, &[n; N]).unwrap();
        assert!(device.memory_usage().pending_host <= 2 * BLOCK);
        stepper.run_all();
    }
    for n in 0..40 {
        s.write(&mut x, &[n; N]).unwrap();
    }
    stepper.run_all();
    for n in 0..40 {
        s.write(&mut x, &[n; N]).unwrap();
        stepper.run_all();
    }
    assert_eq!(device.memory_usage().pending_host, BLOCK, "what piled up once is let go of, two for one");
}

/// The bound is the slot's, and threads that share one add an item each.
#[test]
fn host_04_threads_that_share_a_slot_stay_within_the_limit_and_one_item_each() {
    const THREADS: u32 = 4;
    let device = Device::open(limited(4, usize::MAX)).unwrap();
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

/// A launch lets go of what the writes before it left, or a stream that has stopped to write keeps it for ever.
#[test]
fn host_04_launches_check_as_writes_do() {
    let (device, stepper) = Device::<Host>::stepped(limited(0, usize::MAX)).unwrap();
    let k = Kernels::load(&device);
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    s.write(&mut x, &[1; N]).unwrap();
    s.launch(&k.inc, grid(), (&mut x,)).unwrap();
    assert_eq!((device.memory_usage().pending_host, stepper.pending(s.id())), (0, 1));
    assert_eq!(s.read(&x).unwrap(), [2; N]);
}

/// Whoever waits may be the one who steps: the wait would be for itself.
#[test]
fn host_04_nothing_waits_on_a_device_that_is_held() {
    let (device, stepper) = Device::<Host>::stepped(limited(1, 1)).unwrap();
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    stepper.run_all();
    let hold = stepper.hold();
    for n in 0..20 {
        s.write(&mut x, &[n; N]).unwrap();
    }
    assert_eq!((stepper.pending(s.id()), device.memory_usage().pending_host), (20, 20 * BLOCK));
    drop(hold);
    s.write(&mut x, &[20; N]).unwrap();
    assert!(device.memory_usage().pending_host <= 2 * BLOCK);
    assert_eq!(s.read(&x).unwrap(), [20; N]);
}

/// A wait inside a window is what a capture must never meet; what the window keeps is the graph's.
#[test]
fn host_04_nothing_is_flushed_while_the_stream_records_and_its_end_flushes() {
    let (device, stepper) = Device::<Host>::stepped(limited(2, usize::MAX)).unwrap();
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    s.write(&mut x, &[1; N]).unwrap();
    s.write(&mut x, &[2; N]).unwrap();
    s.write(&mut x, &[3; N]).unwrap();
    let mut recording = s.prepare().unwrap().begin().unwrap();
    stepper.run_all();
    let (calls, pending) = (device.faults().total(), device.memory_usage().pending_host);
    assert_eq!(pending, 3 * BLOCK);
    for n in 0..50 {
        recording.write(&mut x, &[n; N]).unwrap();
    }
    assert_eq!((device.faults().total(), device.memory_usage().pending_host), (calls, pending));
    let (mut graph, mut s) = recording.end().unwrap();
    assert_eq!(device.memory_usage().pending_host, 0);
    graph.replay(&mut s).unwrap();
    assert_eq!(s.read(&x).unwrap(), [49; N]);
}

/// A wait for room on a device that is gone would be a wait for ever.
#[test]
fn host_04_a_lost_device_keeps_nobody_waiting_for_room() {
    let (device, stepper) = Device::<Host>::stepped(limited(0, usize::MAX)).unwrap();
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    let _hold = stepper.hold();
    s.write(&mut x, &[1; N]).unwrap();
    device.faults().fail_nth(Call::Fill, 1, dacapo::host::Severity::Sticky);
    refused(s.fill(&mut x, 1));
    assert_eq!(refused(s.write(&mut x, &[2; N])).kind(), dacapo::ErrorKind::Lost);
}

/// Reclaimed on poll only, what was never awaited filled the memory.
#[test]
fn wgpu_08_reads_that_nobody_awaits_stay_within_the_limit() {
    let device = Device::open(limited(8, usize::MAX)).unwrap();
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    s.fill(&mut x, 5).unwrap();
    for n in 0..10_000 {
        drop(s.read_async(&x).unwrap());
        assert!(device.memory_usage().pending_host <= 9 * BLOCK, "after read {n}");
    }
    assert!(device.faults().count(Call::Pin) <= 10);
    assert_eq!(s.read(&x).unwrap(), [5; N]);
}

/// Nothing of a replay waits on the host, so that only the queue bounds how many are in flight.
#[test]
fn wgpu_08_replays_without_a_read_hold_no_host_memory() {
    let host = HostOptions::new().in_flight(64);
    let device = Device::open(DeviceOptions::new().max_streams(1).backend(host)).unwrap();
    let k = Kernels::load(&device);
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(1).unwrap();
    let (mut graph, ()) = s
        .record(|w| {
            w.write(&mut x, &[1])?;
            w.launch(&k.inc, Grid::covering(1), (&mut x,))
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
fn a_cleanup_lets_go_of_what_every_slot_has_passed() {
    let (device, stepper) = Device::<Host>::stepped(DeviceOptions::new().max_streams(4)).unwrap();
    let mut streams: Vec<_> = (0..4).map(|_| device.stream().unwrap()).collect();
    let mut buffers: Vec<_> = streams.iter_mut().map(|s| s.alloc::<u32>(N).unwrap()).collect();
    for (s, x) in streams.iter_mut().zip(&mut buffers) {
        s.write(x, &[1; N]).unwrap();
    }
    let last = streams[3].id();
    stepper.run(streams[0].id());
    stepper.run(streams[1].id());
    assert_eq!(device.memory_usage().pending_host, 4 * BLOCK);
    streams[2].memory_cleanup().unwrap();
    assert_eq!(device.memory_usage().pending_host, 2 * BLOCK);
    assert_eq!(stepper.pending(last), 2, "a cleanup does not wait");
    stepper.run_all();
    streams[2].memory_cleanup().unwrap();
    assert_eq!(device.memory_usage().pending_host, 0);
}
