//! Opening a device, and what is said where that is not possible.

use dacapo::cuda::{Cuda, CudaOptions};
use dacapo::prelude::*;
use dacapo::{Call, DeviceOptions, Error};

/// "Driver error 3" sends nobody anywhere. What is missing depends on the machine, so that any of it may be said here.
#[test]
fn a_machine_without_what_is_needed_is_told_what_is_missing() {
    let (call, message) = match Device::<Cuda>::new(9999) {
        Err(Error::Driver { call, message }) => (call, message),
        other => panic!("{other:?}"),
    };
    assert_eq!(call, Call::Open);
    let missing = [
        "there is no CUDA driver",
        "the driver is for CUDA",
        "there is no CUDA device 9999",
        "no CUDA-capable",
    ];
    assert!(missing.iter().any(|missing| message.contains(missing)), "{message}");
}

/// A context that went with the first device would take the others' memory along.
#[test]
fn devices_on_one_gpu_come_and_go_apart() {
    let (first, _) = crate::device!();
    let mut stream = first.stream().unwrap();
    let kept = crate::support::written(&mut stream, &[1.0, 2.0]);
    for _ in 0..3 {
        let options = DeviceOptions::<Cuda>::new().max_streams(2).backend(CudaOptions::new().in_flight(64));
        let second = Device::open(options).unwrap();
        let mut other = second.stream().unwrap();
        let x = other.alloc::<u32>(1000).unwrap();
        assert_eq!(other.read(&x).unwrap(), [0; 1000]);
        let mut y = other.alloc(2).unwrap();
        let error = other.copy(&kept, &mut y).unwrap_err();
        assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
    }
    assert_eq!(stream.read(&kept).unwrap(), [1.0, 2.0]);
}

/// What is still in flight needs its device, which nobody holds any more.
#[test]
fn a_device_that_is_dropped_in_flight_ends_its_work_first() {
    let (device, kernels) = crate::device!();
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<u32>(64).unwrap();
    stream.launch(&kernels.spin, Grid::covering(64), (&mut x, Len, 20_000_000)).unwrap();
    let future = stream.read_async(&x).unwrap();
    drop((x, stream, kernels, device));
    assert_eq!(crate::support::block_on(future).unwrap(), [1; 64]);
}
