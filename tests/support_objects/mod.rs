//! What the case tests of objects and failures share: kernels, sentinels, the baseline of memory.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use dacapo::host::Stepper;
use dacapo::prelude::*;
use dacapo::{DeviceOptions, Error, ErrorKind, MemoryUsage, Result};

/// How long a test waits for what must happen before it calls that a failure. Never a proof of anything.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The elements of most buffers here.
pub const N: usize = 64;

/// The kernels of the cases, all over `u32` with wrapping arithmetic, so that results are exact.
#[derive(Clone)]
pub struct Kernels {
    /// `out = in + 1`.
    pub add1: Kernel<(In<u32>, Out<u32>)>,
    /// `out = in * 2`.
    pub mul2: Kernel<(In<u32>, Out<u32>)>,
    /// `c += 1`, in place.
    pub inc: Kernel<(InOut<u32>,)>,
    /// `out = v`.
    pub set: Kernel<(Out<u32>, u32)>,
    /// `out = a + b`.
    pub sum: Kernel<(In<u32>, In<u32>, Out<u32>)>,
}

impl Kernels {
    pub fn load(device: &Device) -> Self {
        Self::try_load(device).unwrap()
    }

    pub fn try_load(device: &Device) -> Result<Self> {
        let add1 = Program::<(In<u32>, Out<u32>)>::new("add1")
            .host(|(x, y), _| y.iter_mut().zip(x).for_each(|(y, x)| *y = x.wrapping_add(1)));
        let mul2 = Program::<(In<u32>, Out<u32>)>::new("mul2")
            .host(|(x, y), _| y.iter_mut().zip(x).for_each(|(y, x)| *y = x.wrapping_mul(2)));
        let inc = Program::<(InOut<u32>,)>::new("inc")
            .host(|(c,), _| c.iter_mut().for_each(|c| *c = c.wrapping_add(1)));
        let set = Program::<(Out<u32>, u32)>::new("set").host(|(y, v), _| y.fill(v));
        let sum = Program::<(In<u32>, In<u32>, Out<u32>)>::new("sum").host(|(a, b, y), _| {
            y.iter_mut().zip(a.iter().zip(b)).for_each(|(y, (a, b))| *y = a.wrapping_add(*b));
        });
        Ok(Kernels {
            add1: add1.load(device)?,
            mul2: mul2.load(device)?,
            inc: inc.load(device)?,
            set: set.load(device)?,
            sum: sum.load(device)?,
        })
    }
}

/// A device that runs nothing by itself: the gate of every race here.
pub fn stepped(slots: usize) -> (Device, Stepper) {
    Device::<Host>::stepped(DeviceOptions::new().max_streams(slots)).unwrap()
}

/// A device with workers.
pub fn device(slots: usize) -> Device {
    Device::open(DeviceOptions::new().max_streams(slots)).unwrap()
}

/// The grid of all elements of most buffers here.
pub fn grid() -> Grid {
    Grid::covering(N)
}

/// What the device holds when nothing was freed yet: what [`assert_returns_to`] must find again.
pub fn baseline(stream: &mut Stream) -> MemoryUsage {
    stream.sync().unwrap();
    stream.device().memory_usage()
}

/// Cleans up until the device holds exactly `baseline`, as it must in the end.
pub fn assert_returns_to(stream: &mut Stream, baseline: MemoryUsage) {
    let device = stream.device();
    eventually(
        || {
            stream.memory_cleanup().unwrap();
            device.memory_usage() == baseline
        },
        || format!("held {:?}, and the baseline was {baseline:?}", device.memory_usage()),
    );
}

/// Waits for what another thread of the library does in its own time.
pub fn eventually(mut what: impl FnMut() -> bool, message: impl Fn() -> String) {
    let started = Instant::now();
    while !what() {
        assert!(started.elapsed() < PATIENCE, "it never happened: {}", message());
        std::thread::yield_now();
    }
}

/// Waits until `token` is held by nobody but the test.
pub fn assert_let_go(token: &Arc<()>) {
    eventually(|| Arc::strong_count(token) == 1, || "something of the device is leaked".to_owned());
}

/// The error of a call that must fail.
#[track_caller]
pub fn refused<T>(outcome: Result<T>) -> Error {
    match outcome {
        Ok(_) => panic!("the call should have failed"),
        Err(error) => error,
    }
}

/// Asserts that reading `buffer` says that it is tainted, and with what at the root.
#[track_caller]
pub fn assert_tainted(stream: &mut Stream, buffer: &Buffer<u32>, root: &Error) {
    let error = refused(stream.read(buffer));
    assert!(matches!(error, Error::Tainted { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Tainted);
    assert_eq!(error.root().to_string(), root.to_string());
}
