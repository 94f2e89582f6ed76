//! What the case tests share: the kernels, sentinels and baseline of their vocabulary, on the host.

#![allow(dead_code, reason = "every test binary uses a part of its own")]

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use dacapo::host::Stepper;
use dacapo::prelude::*;
use dacapo::{Call, DeviceOptions, Error, MemoryUsage, ReadFuture};

/// Elements of an ordinary buffer: 64 KiB, so that a page of the pool has room for 32 of them.
pub const LEN: usize = 16 << 10;

/// Elements of a buffer that has a page of the driver's to itself: 1 MiB.
pub const LARGE: usize = 256 << 10;

pub type Map = Kernel<(In<f32>, Out<f32>)>;

/// The four kernels of the cases.
pub struct Kernels {
    /// `out = in + 1`.
    pub add1: Map,
    /// `out = in * 2`.
    pub mul2: Map,
    /// `c += 1`, in place.
    pub inc: Kernel<(InOut<f32>,)>,
    /// `b = v`.
    pub fill: Kernel<(Out<f32>, f32)>,
    /// Panics instead of writing.
    pub broken: Kernel<(Out<f32>,)>,
}

impl Kernels {
    pub fn load(device: &Device) -> Self {
        let map = |name: &str, f: fn(f32) -> f32| {
            let program = Program::<(In<f32>, Out<f32>)>::new(name);
            program.host(move |(x, y), _| y.iter_mut().zip(x).for_each(|(y, x)| *y = f(*x)))
        };
        let inc = Program::<(InOut<f32>,)>::new("inc").host(|(c,), _| c.iter_mut().for_each(|c| *c += 1.0));
        let fill = Program::<(Out<f32>, f32)>::new("fill").host(|(b, v), _| b.fill(v));
        let broken = Program::<(Out<f32>,)>::new("broken").host(|_, _| panic!("a kernel that always fails"));
        Kernels {
            add1: map("add1", |x| x + 1.0).load(device).unwrap(),
            mul2: map("mul2", |x| x * 2.0).load(device).unwrap(),
            inc: inc.load(device).unwrap(),
            fill: fill.load(device).unwrap(),
            broken: broken.load(device).unwrap(),
        }
    }
}

/// A device with `slots` slots on which nothing runs before the test says so.
pub fn stepped(slots: usize) -> (Device, Stepper, Kernels) {
    stepped_with(DeviceOptions::new().max_streams(slots))
}

pub fn stepped_with(options: DeviceOptions) -> (Device, Stepper, Kernels) {
    let (device, stepper) = Device::<Host>::stepped(options).unwrap();
    let kernels = Kernels::load(&device);
    (device, stepper, kernels)
}

/// A device with `slots` slots, each with a worker.
pub fn working(slots: usize) -> (Device, Kernels) {
    let device = Device::open(DeviceOptions::new().max_streams(slots)).unwrap();
    let kernels = Kernels::load(&device);
    (device, kernels)
}

/// How often the driver was called, but for what happens by itself at any moment: releases of memory, which the library's
/// own thread makes, and the running of what was asked for earlier.
pub fn calls(device: &Device) -> u64 {
    let faults = device.faults();
    let at_once = |call: &Call| !matches!(call, Call::Free | Call::Execute);
    Call::ALL.into_iter().filter(at_once).map(|call| faults.count(call)).sum()
}

pub fn grid() -> Grid {
    Grid::covering(LEN)
}

/// A buffer of [`LEN`] elements that all hold `value`, once the device got there.
pub fn filled(stream: &mut impl Enqueue<Host>, value: f32) -> Buffer<f32> {
    let mut buffer = stream.alloc(LEN).unwrap();
    stream.fill(&mut buffer, value).unwrap();
    buffer
}

/// Whether all elements are `value`.
pub fn all(elements: &[f32], value: f32) -> bool {
    !elements.is_empty() && elements.iter().all(|element| *element == value)
}

/// What a read that is in flight has come to, without waiting.
pub fn poll<T: bytemuck::Pod>(future: &mut ReadFuture<T>) -> Option<Result<Vec<T>, Error>> {
    match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

/// Waits for a future with nothing but its waker.
pub fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
    loop {
        match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Buffers full of a canary, enough to take every block that was freed before.
pub struct Sentinels(Vec<Buffer<f32>>);

impl Sentinels {
    const CANARY: f32 = 4242.25;
    /// More than one page of the pool holds.
    const COUNT: usize = 40;

    pub fn post(stream: &mut Stream) -> Self {
        Sentinels((0..Self::COUNT).map(|_| filled(stream, Self::CANARY)).collect())
    }

    pub fn are_intact(&self, stream: &mut Stream) -> bool {
        self.0.iter().all(|buffer| all(&stream.read(buffer).unwrap(), Self::CANARY))
    }
}

/// What the device held at one moment, with everything done and everything free given back.
pub struct Baseline(MemoryUsage);

impl Baseline {
    pub fn take(stream: &mut Stream) -> Self {
        stream.sync().unwrap();
        stream.memory_cleanup().unwrap();
        let device = stream.device();
        assert!(eventually(|| device.memory_usage().pending == 0));
        Baseline(device.memory_usage())
    }

    /// Whether the device comes back to it. Pages go back to the driver on a thread of the library's own, so this
    /// looks until they have, or until nobody would wait any longer.
    pub fn returns(&self, stream: &mut Stream) -> bool {
        stream.sync().unwrap();
        let device = stream.device();
        eventually(|| {
            stream.memory_cleanup().unwrap();
            device.memory_usage() == self.0
        })
    }
}

/// Whether `condition` comes true in the time that another thread may need; false is a failure, never a matter of luck.
pub fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::yield_now();
    }
    true
}
