//! What the tests share: the library's types on the backend that is tested, devices, gates, sentinels, the baseline of
//! memory.

#![allow(dead_code, reason = "a backend's tests use a part of it")]

#[path = "../../support_gate/mod.rs"]
mod gate;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use dacapo::{Element, Error, ErrorKind, MemoryUsage, ReadFuture};

pub use super::subject::{self, Subject, open};
pub use super::zoo::{Kernels, Number};
#[allow(unused_imports, reason = "the library's names that need no backend, for all tests")]
pub use dacapo::{
    Enqueue, Grid, In, InOut, Len, NoCapture, Out, Prepared, Program, Recording, Slice, SliceMut, Touches,
    Uniform,
};
#[allow(unused_imports, reason = "who has no gates")]
pub use gate::{Gate, beside_gates, is_overdue};

pub type AnyStream = dacapo::AnyStream<Subject>;
pub type Buffer<T> = dacapo::Buffer<T, Subject>;
pub type CaptureOptions = dacapo::CaptureOptions<Subject>;
pub type Device = dacapo::Device<Subject>;
pub type DeviceOptions = dacapo::DeviceOptions<Subject>;
pub type Graph = dacapo::Graph<Subject>;
pub type Kernel<S> = dacapo::Kernel<S, Subject>;
pub type Stream<P = NoCapture> = dacapo::Stream<P, Subject>;
pub type Ticket = dacapo::Ticket<Subject>;
pub type Work<'w> = dacapo::Work<'w, Subject>;

/// Elements of an ordinary buffer: 64 KiB, so that a page of the pool has room for 32 of them.
pub const LEN: usize = 16 << 10;

/// Elements of a buffer that has a page of the driver's to itself: 1 MiB.
pub const LARGE: usize = 256 << 10;

/// Elements of a small buffer: 256 bytes, which alignment leaves as they are.
pub const N: usize = 64;

/// For waits that are to give up.
pub const SHORT: Duration = Duration::from_millis(1);

/// How long a test waits for what must happen before it calls that a failure. Never a proof of anything.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A device with `slots` slots, unless there is none.
pub fn device(slots: usize) -> Option<Device> {
    open(DeviceOptions::new().max_streams(slots))
}

/// A device with `slots` slots and the kernels of most tests, unless there is none.
pub fn working(slots: usize) -> Option<(Device, Kernels)> {
    working_with(DeviceOptions::new().max_streams(slots))
}

pub fn working_with(options: DeviceOptions) -> Option<(Device, Kernels)> {
    let device = open(options)?;
    let kernels = Kernels::load(&device);
    Some((device, kernels))
}

pub fn grid() -> Grid {
    Grid::covering(LEN)
}

/// What no device launches: more blocks along y than there may be.
pub fn beyond_limits() -> Grid {
    Grid::blocks((1, 1 << 16))
}

/// A buffer of [`LEN`] elements that all hold `value`, once the device got there.
pub fn filled(stream: &mut impl Enqueue<Subject>, value: f32) -> Buffer<f32> {
    let mut buffer = stream.alloc(LEN).unwrap();
    stream.fill(&mut buffer, value).unwrap();
    buffer
}

/// Different values, of which none is what fresh memory holds.
pub fn ramp(len: usize) -> Vec<f32> {
    (0..len).map(|n| n as f32 + 1.0).collect()
}

/// A buffer that holds `data`, once the device got there.
pub fn written(stream: &mut impl Enqueue<Subject>, data: &[f32]) -> Buffer<f32> {
    let mut buffer = stream.alloc_scratch(data.len()).unwrap();
    stream.write(&mut buffer, data).unwrap();
    buffer
}

/// Whether all elements are `value`.
pub fn all<T: PartialEq>(elements: &[T], value: T) -> bool {
    !elements.is_empty() && elements.iter().all(|element| *element == value)
}

/// The stream is in no capture, and a whole capture works on it.
#[track_caller]
pub fn assert_usable(stream: &mut Stream, k: &Kernels) {
    let status = stream.device().captures();
    assert!(!status.is_capturing(stream.id()));
    let x = filled(stream, 4.0);
    let mut y = filled(stream, 0.0);
    let (mut graph, ()) =
        stream.capture(|work| work.launch(&k.add1, grid(), (&x, &mut y, Len, Len))).unwrap();
    assert_eq!(graph.nodes(), 1);
    stream.fill(&mut y, 0.0).unwrap();
    graph.replay(stream).unwrap();
    assert!(all(&stream.read(&y).unwrap(), 5.0));
    assert!(!status.is_capturing(stream.id()));
}

/// Per node, the nodes that it directly follows.
pub fn after(graph: &Graph) -> Vec<Vec<usize>> {
    (0..graph.nodes()).map(|n| graph.node(n).unwrap().after).collect()
}

/// An operation that was to write `buffer`, and fails after its call returned.
pub fn fail_late<T: Number>(stream: &mut impl Enqueue<Subject>, buffer: &mut Buffer<T>) {
    stream.host_call_with(Touches::new().writes(buffer), || panic!("a callback that always fails")).unwrap();
}

/// Whether what the stream was last asked for is not done yet.
pub fn is_held_up(stream: &mut Stream) -> bool {
    match stream.sync_timeout(SHORT) {
        Ok(()) => false,
        Err(Error::Timeout { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

/// What a read that is in flight has come to, without waiting.
pub fn poll<T: bytemuck::Pod>(future: &mut ReadFuture<T>) -> Option<Result<Vec<T>, Error>> {
    match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future with nothing but its waker.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Buffers full of a canary, enough to take every block of their size that was freed before.
pub struct Sentinels<T: Element = f32> {
    buffers: Vec<Buffer<T>>,
    canary: T,
}

impl Sentinels {
    /// Buffers of [`LEN`] elements, more than one page of the pool holds.
    pub fn post(stream: &mut Stream) -> Self {
        Sentinels::of(stream, 40, LEN, 4242.25)
    }
}

impl<T: Number + PartialEq> Sentinels<T> {
    /// `count` buffers of `len` elements.
    pub fn of(stream: &mut Stream, count: usize, len: usize, canary: T) -> Self {
        let filled = |_| {
            let mut buffer = stream.alloc_scratch(len).unwrap();
            stream.fill(&mut buffer, canary).unwrap();
            buffer
        };
        Sentinels { buffers: (0..count).map(filled).collect(), canary }
    }

    pub fn are_intact(&self, stream: &mut Stream) -> bool {
        self.buffers.iter().all(|buffer| all(&stream.read(buffer).unwrap(), self.canary))
    }
}

/// Where a buffer lies, if the memory of the backend has addresses. Else the question is refused as unsupported.
#[track_caller]
pub fn address<T: Element>(buffer: &Buffer<T>) -> Option<u64> {
    match buffer.raw() {
        Ok(raw) => Some(raw.address()),
        Err(error) if subject::HAS_ADDRESSES => panic!("{error}"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            None
        }
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
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// Waits until `token` is held by nobody but the test.
#[track_caller]
pub fn assert_let_go(token: &Arc<()>) {
    assert!(eventually(|| Arc::strong_count(token) == 1), "something of the device is leaked");
}

/// The error of a call that must fail.
#[track_caller]
pub fn refused<T>(outcome: dacapo::Result<T>) -> Error {
    match outcome {
        Ok(_) => panic!("the call should have failed"),
        Err(error) => error,
    }
}

/// Asserts that reading `buffer` says that it is tainted, and with what at the root.
#[track_caller]
pub fn assert_tainted<T: Number>(stream: &mut Stream, buffer: &Buffer<T>, root: &Error) {
    let error = refused(stream.read(buffer));
    assert!(matches!(error, Error::Tainted { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Tainted);
    assert_eq!(error.root().to_string(), root.to_string());
}
