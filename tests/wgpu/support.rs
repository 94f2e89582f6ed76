//! The device, and the device of a program that has its own.

#![allow(dead_code, reason = "every test binary uses a part of its own")]

#[path = "spares.rs"]
mod spares;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use dacapo::prelude::*;
use dacapo::wgpu::{
    Wgpu,
    wgpu::{self, InstanceFlags},
};
use dacapo::{DeviceOptions, Error, Len, Result};

use spares::{Keep, Parts};

pub type Buf<T> = Buffer<T, Wgpu>;

/// Longer than anything here takes, also on a busy machine with no GPU: what has not come by then never will.
pub const LONG: Duration = Duration::from_secs(60);

/// The device with these options, unless there is none and none is required.
pub fn device_with(options: DeviceOptions<Wgpu>) -> Option<Device<Wgpu>> {
    match Device::open(options) {
        Ok(device) => Some(device),
        Err(error) => {
            skip(&error);
            None
        }
    }
}

pub fn device() -> Option<Device<Wgpu>> {
    device_with(DeviceOptions::new())
}

/// Prints that the test is skipped, unless a device is required.
fn skip(error: &dyn std::fmt::Display) {
    let required = std::env::var("DACAPO_REQUIRE").is_ok_and(|what| what.contains("wgpu"));
    assert!(!required, "a wgpu device is required: {error}");
    println!("skipped: {error}");
}

/// A program's own device and queue, and how often each of its handlers was called.
pub struct Program {
    flags: InstanceFlags,
    adapter: wgpu::Adapter,
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub errors: Arc<AtomicUsize>,
    pub losses: Arc<AtomicUsize>,
    keep: Keep,
}

impl Program {
    /// With all limits of the machine's first adapter.
    pub fn new() -> Option<Self> {
        Self::with(|limits| limits)
    }

    pub fn with(limits: impl FnOnce(wgpu::Limits) -> wgpu::Limits) -> Option<Self> {
        Self::first(InstanceFlags::default(), limits)
    }

    fn first(flags: InstanceFlags, limits: impl FnOnce(wgpu::Limits) -> wgpu::Limits) -> Option<Self> {
        let Some(adapter) = adapters_of(flags).into_iter().next() else {
            skip(&"there is no adapter");
            return None;
        };
        let limits = limits(adapter.limits());
        Some(Self::of(spares::take(flags, &limits).unwrap_or_else(|| parts(flags, adapter, limits))))
    }

    /// On an instance with these flags.
    pub fn flagged(flags: InstanceFlags) -> Option<Self> {
        Self::first(flags, |limits| limits)
    }

    /// Another device of the same instance of wgpu.
    pub fn sibling(&self) -> Self {
        Self::of(parts(self.flags, self.adapter.clone(), wgpu::Limits::default()))
    }

    fn of(parts: Parts) -> Self {
        let keep = Keep::of(&parts);
        let Parts { flags, adapter, device, queue } = parts;
        let (errors, losses) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (on_error, on_loss) = (errors.clone(), losses.clone());
        device.on_uncaptured_error(Arc::new(move |_: wgpu::Error| {
            on_error.fetch_add(1, SeqCst);
        }));
        device.set_device_lost_callback(move |_, _| {
            on_loss.fetch_add(1, SeqCst);
        });
        Program { flags, adapter, device, queue, errors, losses, keep }
    }

    /// Whether the device stays when no test uses it any more, so that a test must not want many.
    pub fn stays(&self) -> bool {
        self.keep.keeps()
    }

    /// The same device, of this library.
    pub fn open(&self) -> Device<Wgpu> {
        Device::<Wgpu>::from_parts(self.device.clone(), self.queue.clone()).unwrap()
    }

    /// How often the handler of errors was called.
    pub fn errors(&self) -> usize {
        self.errors.load(SeqCst)
    }

    /// A buffer that can be adopted, with these words.
    pub fn buffer(&self, words: &[u32]) -> wgpu::Buffer {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("theirs"),
            size: 4 * words.len() as u64,
            usage,
            mapped_at_creation: false,
        });
        self.queue.write_buffer(&buffer, 0, bytemuck::cast_slice(words));
        buffer
    }

    /// What a buffer of the program's holds, by the program's own means.
    pub fn words(&self, buffer: &wgpu::Buffer) -> Vec<u32> {
        let copy = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: buffer.size(),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(buffer, 0, &copy, 0, Some(buffer.size()));
        self.queue.submit([encoder.finish()]);
        let (sender, receiver) = channel();
        copy.map_async(wgpu::MapMode::Read, .., move |outcome| sender.send(outcome).unwrap());
        self.device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
        receiver.recv_timeout(LONG).unwrap().unwrap();
        let view = copy.get_mapped_range(..).unwrap();
        bytemuck::cast_slice(&view).to_vec()
    }
}

fn parts(flags: InstanceFlags, adapter: wgpu::Adapter, required_limits: wgpu::Limits) -> Parts {
    let descriptor = wgpu::DeviceDescriptor { required_limits, ..Default::default() };
    let (device, queue) = pollster::block_on(adapter.request_device(&descriptor)).unwrap();
    Parts { flags, adapter, device, queue }
}

/// The adapters that need no display.
pub fn adapters() -> Vec<wgpu::Adapter> {
    adapters_of(InstanceFlags::default())
}

fn adapters_of(flags: InstanceFlags) -> Vec<wgpu::Adapter> {
    let backends = wgpu::Backends::PRIMARY;
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends,
        flags,
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    pollster::block_on(instance.enumerate_adapters(backends))
}

/// Unpacks the device, or ends the test.
#[macro_export]
macro_rules! device {
    () => {
        match $crate::support::device() {
            Some(device) => device,
            None => return,
        }
    };
}

/// Unpacks the program with a device of its own, or ends the test.
#[macro_export]
macro_rules! program {
    () => {
        match $crate::support::Program::new() {
            Some(program) => program,
            None => return,
        }
    };
}

/// `x += by`, and its length.
pub type Add = (InOut<u32>, u32, Len<0>);

const ADD: &str = "
struct Scalars { by: u32, n: u32 }
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@group(0) @binding(1) var<uniform> scalars: Scalars;
@compute @workgroup_size(256)
fn add(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < scalars.n { x[id.x] += scalars.by; }
}
";

pub fn add(device: &Device<Wgpu>) -> Kernel<Add, Wgpu> {
    dacapo::Program::<Add>::new("add").wgsl(ADD, "add").load(device).unwrap()
}

/// Different values, of which none is what fresh memory holds.
pub fn ramp(len: usize) -> Vec<u32> {
    (1..=len as u32).collect()
}

pub fn written(stream: &mut impl Enqueue<Wgpu>, data: &[u32]) -> Buf<u32> {
    let mut buffer = stream.alloc_scratch(data.len()).unwrap();
    stream.write(&mut buffer, data).unwrap();
    buffer
}

/// The message of a refusal by the driver.
pub fn message(error: &Error) -> &str {
    match error {
        Error::Driver { message, .. } => message,
        other => panic!("{other}"),
    }
}

/// Waits until it is so.
pub fn eventually(mut test: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while started.elapsed() < LONG {
        if test() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// Holds a stream up until it is opened, or dropped.
pub struct Gate(#[allow(dead_code, reason = "its drop is what opens the gate")] Sender<()>);

impl Gate {
    pub fn close(stream: &mut impl Enqueue<Wgpu>) -> Result<Gate> {
        let (sender, receiver) = channel::<()>();
        stream.host_call(move || {
            let _ = receiver.recv();
        })?;
        Ok(Gate(sender))
    }

    pub fn open(self) {}
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Drives a future on this thread, which waits for nothing but the waker; `None` if that never comes.
pub fn within_long<F: Future>(future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let started = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        std::thread::park_timeout(LONG.checked_sub(started.elapsed())?);
    }
}
