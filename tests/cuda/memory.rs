//! Memory that comes and goes.

use dacapo::cuda::Cuda;
use dacapo::prelude::*;
use dacapo::{AllocationMode, DeviceOptions, Error};

use crate::support::{Kernels, device_with, eventually, ramp, written};

#[test]
fn everything_goes_back_to_the_driver() {
    let (device, k) = crate::device!();
    let mut stream = device.stream().unwrap();
    let before = device.memory_usage();
    assert_eq!(before.in_use, 0);
    for mode in [AllocationMode::Pooled, AllocationMode::Persistent, AllocationMode::Dedicated] {
        let mut buffers = stream
            .allocating(mode, |work| {
                (0..20).map(|n| work.alloc::<f32>(n * 50_000)).collect::<Result<Vec<_>, _>>()
            })
            .unwrap();
        for buffer in &mut buffers {
            let grid = Grid::covering(buffer.len());
            stream.launch(&k.inc, grid, (&mut *buffer, Len)).unwrap();
            assert!(stream.read(&*buffer).unwrap().iter().all(|x| *x == 1.0));
        }
    }
    assert!(eventually(|| {
        stream.memory_cleanup().unwrap();
        device.memory_usage().held == 0
    }));
}

/// Without anybody who waits, pages that wait for work in flight would stay for ever.
#[test]
fn a_dedicated_page_goes_back_though_nobody_waits() {
    let (device, k) = crate::device!();
    let mut stream = device.stream().unwrap();
    let mut x = stream.allocating(AllocationMode::Dedicated, |work| work.alloc::<f32>(1 << 20)).unwrap();
    stream.launch(&k.inc, Grid::covering(1 << 20), (&mut x, Len)).unwrap();
    let held = device.memory_usage().held;
    drop(x);
    assert!(eventually(|| device.memory_usage().held < held));
}

#[test]
fn buffers_move_together_with_what_they_hold() {
    let (device, _) = crate::device!();
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let all: Vec<_> = (0..400).map(|n| written(&mut a, &vec![n as f32; 16 << 10])).collect();
    let kept: Vec<_> = all.into_iter().enumerate().filter(|(n, _)| n % 37 == 0).collect();
    let moved = a.compact().unwrap();
    assert!(moved.buffers > 0, "{moved:?}");
    for (n, x) in &kept {
        assert!(b.read(x).unwrap().iter().all(|x| *x == *n as f32), "buffer {n}");
    }
}

#[test]
fn more_than_there_is_is_an_error_that_changes_nothing() {
    let Some(device) = device_with(DeviceOptions::<Cuda>::new().memory_limit(64 << 20)) else { return };
    let k = Kernels::load(&device);
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &ramp(1000));
    assert!(matches!(stream.alloc::<u8>(65 << 20), Err(Error::OutOfMemory { .. })));
    assert!(matches!(stream.alloc::<u8>(1 << 50), Err(Error::BufferTooBig { .. })));
    stream.launch(&k.inc, Grid::covering(1000), (&mut x, Len)).unwrap();
    assert_eq!(stream.read(&x).unwrap()[999], 1001.0);
}

#[test]
fn a_raw_address_is_the_devices() {
    let (device, _) = crate::device!();
    let mut stream = device.stream().unwrap();
    let x = written(&mut stream, &ramp(1000));
    let (whole, part) = (x.raw().unwrap(), x.slice(10..).unwrap().raw().unwrap());
    assert!(whole.address() != 0 && whole.address().is_multiple_of(256));
    assert_eq!(part.address(), whole.address() + 40);
}
