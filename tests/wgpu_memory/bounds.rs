//! Nothing grows without a bound, however little its owner waits.

use dacapo::prelude::*;
use dacapo::wgpu::Wgpu;
use dacapo::{DeviceOptions, Len};

use crate::Resident;
use crate::support::{add, device_with, written};

/// How much more than at a time before the process may have grown: far less than what would grow if nothing bounded it.
const ROOM: usize = 256 << 20;

/// Submissions that nobody waits for fill the driver's memory, until the device is lost.
#[test]
fn wgpu_08_replays_without_a_read_stay_within_bounds() {
    const REPLAYS: usize = 100_000;
    let resident = Resident::alone();
    let device = crate::device!();
    let add = add(&device);
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(1).unwrap();
    let (mut graph, ()) = s.record(|work| work.launch(&add, Grid::covering(1), (&mut x, 1u32, Len))).unwrap();
    for _ in 0..1000 {
        graph.replay(&mut s).unwrap();
    }
    let before = resident.bytes();
    for _ in 1000..REPLAYS {
        graph.replay(&mut s).unwrap();
    }
    assert!(resident.bytes() < before + ROOM, "{before} bytes, and {} bytes later", resident.bytes());
    assert_eq!(s.read(&x).unwrap(), [REPLAYS as u32]);
}

/// Writes are memory that both see, until a submission has passed.
#[test]
fn wgpu_08_writes_without_a_launch_stay_within_bounds() {
    const WRITES: u32 = 10_000;
    let resident = Resident::alone();
    let Some(device) = device_with(DeviceOptions::new().pending_limit(64, 8 << 20)) else { return };
    let mut s = device.stream().unwrap();
    let mut x = written(&mut s, &[0; 64 << 10]);
    let mut data = vec![0u32; 64 << 10];
    for n in 0..100 {
        data[0] = n;
        s.write(&mut x, &data).unwrap();
    }
    let before = resident.bytes();
    for n in 100..WRITES {
        data[0] = n;
        s.write(&mut x, &data).unwrap();
    }
    assert!(resident.bytes() < before + ROOM, "{before} bytes, and {} bytes later", resident.bytes());
    assert_eq!(s.read(&x).unwrap()[0], WRITES - 1);
}

/// Reads that nobody awaits have their memory given back by themselves.
#[test]
fn wgpu_08_reads_that_are_never_awaited_stay_within_bounds() {
    const READS: usize = 10_000;
    let resident = Resident::alone();
    let device = crate::device!();
    let mut s = device.stream().unwrap();
    let x = written(&mut s, &(0..16 << 10).collect::<Vec<_>>());
    let read = |s: &mut Stream<NoCapture, Wgpu>| drop(s.read_async(&x).unwrap());
    (0..100).for_each(|_| read(&mut s));
    let before = resident.bytes();
    (100..READS).for_each(|_| read(&mut s));
    assert!(resident.bytes() < before + ROOM, "{before} bytes, and {} bytes later", resident.bytes());
    assert_eq!(s.read(&x).unwrap()[5], 5);
}
