//! Memory that comes and goes.

use dacapo::cuda::Cuda;
use dacapo::prelude::*;
use dacapo::{DeviceOptions, Error};

use crate::support::{Kernels, device_with, ramp, written};

#[test]
fn more_than_any_device_has_is_too_big_at_once_and_changes_nothing() {
    let Some(device) = device_with(DeviceOptions::<Cuda>::new().memory_limit(64 << 20)) else { return };
    let k = Kernels::load(&device);
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &ramp(1000));
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
