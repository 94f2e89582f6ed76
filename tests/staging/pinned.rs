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
