//! Host memory in flight has a bound: what waits for it, step by step.

use dacapo::prelude::*;
use dacapo::{Call, DeviceOptions};

use crate::support_objects::*;

/// What a write of a few elements keeps: the smallest block that is pinned.
const BLOCK: usize = 1 << 10;

fn limited(items: usize, bytes: usize) -> DeviceOptions {
    DeviceOptions::new().max_streams(1).pending_limit(items, bytes)
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
