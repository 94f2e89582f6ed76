//! The pinned pool: warm, exhausted, refused.

use dacapo::host::Severity;
use dacapo::prelude::*;
use dacapo::{Call, DeviceOptions, Error};

use crate::support_objects::*;

fn with_pool(bytes: usize) -> (Device, Stream) {
    let device = Device::open(DeviceOptions::new().max_streams(1).staging_limit(bytes)).unwrap();
    let stream = device.stream().unwrap();
    (device, stream)
}

fn round_trip(s: &mut Stream, len: usize) {
    let data: Vec<u32> = (0..len as u32).map(|n| n ^ 0x5A5A).collect();
    let mut x = s.alloc::<u32>(len).unwrap();
    s.write(&mut x, &data).unwrap();
    assert_eq!(s.read(&x).unwrap(), data);
}

/// Pinning costs tens of microseconds, and must happen once.
#[test]
fn a_warm_stream_pins_nothing_more() {
    let (device, mut s) = with_pool(1 << 20);
    round_trip(&mut s, 1000);
    let pins = device.faults().count(Call::Pin);
    assert!((1..=2).contains(&pins));
    for len in [1, 1000, 513, 900] {
        round_trip(&mut s, len);
    }
    assert!(device.faults().count(Call::Pin) <= 4, "one or two for each of the two classes");
}

/// Staging that ran out was an error, or an unwrap of nothing.
#[test]
fn wgpu_08_an_exhausted_pool_falls_back_to_the_heap() {
    let (device, stepper) =
        Device::<Host>::stepped(DeviceOptions::new().staging_limit(4 << 10).pending_limit(1000, 1 << 30))
            .unwrap();
    let mut s = device.stream().unwrap();
    let mut x: Vec<_> = (0..20).map(|_| s.alloc::<u32>(N).unwrap()).collect();
    let hold = stepper.hold();
    for (n, x) in x.iter_mut().enumerate() {
        s.write(&mut *x, &[n as u32; N]).unwrap();
    }
    let futures: Vec<_> = x.iter().map(|x| s.read_async(x).unwrap()).collect();
    assert_eq!(device.faults().count(Call::Pin), 4);
    drop(hold);
    stepper.run_all();
    for (n, mut future) in futures.into_iter().enumerate() {
        assert_eq!(crate::reads::poll(&mut future).unwrap().unwrap(), [n as u32; N]);
    }
}

#[test]
fn transfers_larger_than_the_pool_and_pools_of_nothing_use_the_heap() {
    let (device, mut s) = with_pool(4 << 10);
    round_trip(&mut s, 1025);
    round_trip(&mut s, 100_000);
    assert_eq!(device.faults().count(Call::Pin), 0);
    round_trip(&mut s, 1024);
    assert_eq!(device.faults().count(Call::Pin), 1);
    let (device, mut s) = with_pool(0);
    round_trip(&mut s, 1);
    assert_eq!(device.faults().count(Call::Pin), 0);
}

/// Pinned memory is the first that a machine runs out of, and nothing that a transfer needs.
#[test]
fn a_driver_that_refuses_to_pin_is_no_reason_to_fail() {
    let (device, mut s) = with_pool(1 << 20);
    for severity in [Severity::Call, Severity::Memory] {
        device.faults().fail_all(Call::Pin, severity);
        round_trip(&mut s, 100);
        assert!(device.faults().count(Call::Pin) > 0);
        device.faults().clear();
    }
    device.check().unwrap();
    round_trip(&mut s, 100);
}

#[test]
fn a_sticky_fault_in_pinning_poisons() {
    let (device, mut s) = with_pool(1 << 20);
    let mut x = s.alloc::<u32>(N).unwrap();
    device.faults().fail_nth(Call::Pin, 1, Severity::Sticky);
    let error = refused(s.write(&mut x, &[1; N]));
    assert!(matches!(&error, Error::DeviceLost { first } if first.call() == Call::Pin), "{error}");
    assert!(device.check().is_err());
}

/// What is pinned and what is in flight is where an operator looks first when the machine runs out of memory.
#[test]
fn the_report_tells_what_is_pinned_and_what_is_in_flight() {
    let (device, stepper) =
        Device::<Host>::stepped(DeviceOptions::new().staging_limit(4 << 10).max_streams(1)).unwrap();
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u8>(4096).unwrap();
    s.write(x.slice_mut(..2000).unwrap(), &[1; 2000]).unwrap();
    s.write(&mut x, &[2; 4096]).unwrap();
    s.write(x.slice_mut(..3).unwrap(), vec![3; 3]).unwrap();
    let report = device.memory_report();
    assert_eq!((report.pending.transfers, report.pending.host_bytes), (3, 2048 + 4096 + 3));
    assert_eq!((report.staging.held, report.staging.in_use, report.staging.fallbacks), (2048, 2048, 1));
    let text = report.to_string();
    assert!(text.contains("2.0 KiB  pinned, 2.0 KiB of it in use; 1 transfers without"), "{text}");
    stepper.run_all();
    s.sync().unwrap();
    let report = device.memory_report();
    assert_eq!((report.pending.transfers, report.pending.host_bytes), (0, 0));
    assert_eq!((report.staging.held, report.staging.in_use), (2048, 0));
    s.memory_cleanup().unwrap();
    assert_eq!(device.memory_report().staging.held, 0);
    assert_eq!(s.read(x.slice(..4).unwrap()).unwrap(), [3, 3, 3, 2]);
}

/// Blocks of a size that is not used any more would fill the pool for ever.
#[test]
fn blocks_of_other_sizes_make_room_and_a_cleanup_gives_all_of_them_back() {
    let (device, mut s) = with_pool(8 << 10);
    round_trip(&mut s, 1024);
    round_trip(&mut s, 1024);
    let pins = device.faults().count(Call::Pin);
    round_trip(&mut s, 2048);
    assert!(device.faults().count(Call::Pin) > pins, "the pool was full of smaller blocks");
    s.memory_cleanup().unwrap();
    let pins = device.faults().count(Call::Pin);
    round_trip(&mut s, 2048);
    assert!(device.faults().count(Call::Pin) > pins, "a cleanup left the pool empty");
}

/// A block that served before holds somebody's bytes: a read that lands in less of it, or fails, must not show them.
#[test]
fn no_read_shows_what_a_block_held_before() {
    let (device, mut s) = with_pool(1 << 10);
    let mut secret = s.alloc::<u8>(1024).unwrap();
    s.write(&mut secret, &[0xEE; 1024]).unwrap();
    s.sync().unwrap();
    let small = s.alloc::<u8>(3).unwrap();
    assert_eq!(s.read(&small).unwrap(), [0; 3]);
    let mut into = [0x11; 3];
    device.faults().fail_nth(Call::Execute, 1, Severity::Call);
    refused(s.read_into(&small, &mut into));
    assert_eq!(into, [0x11; 3]);
    s.read_into(&small, &mut into).unwrap();
    assert_eq!(into, [0; 3]);
    assert_eq!(device.faults().count(Call::Pin), 1, "all of it went through one block");
}
