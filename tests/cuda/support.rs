//! The device, and the kernels of these tests.

#![allow(dead_code, reason = "every test binary uses a part of its own")]

#[path = "../support_gate/mod.rs"]
mod gate;
#[path = "turn.rs"]
mod turn;

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use dacapo::DeviceOptions;
use dacapo::cuda::Cuda;
use dacapo::prelude::*;

#[allow(unused_imports, reason = "every test binary uses a part of its own")]
pub use gate::Gate;
#[allow(unused_imports, reason = "every test binary uses a part of its own")]
pub use turn::{device_with, eventually, threads};

pub type Buf<T> = Buffer<T, Cuda>;
pub type Axpy = (f32, In<f32>, Len<1>, InOut<f32>, Len<3>);
pub type Gather = (In<u32>, Len<0>, InOut<u32>, Len<2>, Uniform<u32>, Len<4>);
pub type Map = Kernel<(In<f32>, Len<0>, Out<f32>, Len<2>), Cuda>;

const SOURCE: &str = r#"
typedef unsigned long long u64;
__device__ u64 at() { return blockIdx.x * (u64)blockDim.x + threadIdx.x; }

extern "C" __global__ void add1(const float* x, u64 nx, float* y, u64 ny) {
    u64 i = at();
    if (i < nx && i < ny) y[i] = x[i] + 1.0f;
}
extern "C" __global__ void mul2(const float* x, u64 nx, float* y, u64 ny) {
    u64 i = at();
    if (i < nx && i < ny) y[i] = 2.0f * x[i];
}
extern "C" __global__ void inc(float* x, u64 n) {
    u64 i = at();
    if (i < n) x[i] += 1.0f;
}
extern "C" __global__ void axpy(float a, const float* x, u64 nx, float* y, u64 ny) {
    u64 i = at();
    if (i < nx && i < ny) y[i] += a * x[i];
}
extern "C" __global__ void gather(const unsigned* x, u64 nx, unsigned* y, u64 ny, const unsigned* t, u64 nt) {
    u64 i = at();
    if (i < ny && i < nt && t[i] < nx) y[i] = x[t[i]];
}
struct Mixed { float a; unsigned b; double c; };
extern "C" __global__ void mixed(unsigned char s, Mixed m, double* y, u64 n, unsigned short u) {
    u64 i = at();
    if (i < n) y[i] = s + m.a + m.b + m.c + u;
}
extern "C" __global__ void spin(unsigned* x, u64 n, u64 cycles) {
    u64 from = clock64();
    while (clock64() - from < cycles) {}
    u64 i = at();
    if (i < n) x[i] += 1;
}
extern "C" __global__ void count(unsigned* n, u64 len) {
    if (len > 0) atomicAdd(n, 1u);
}
"#;

/// The kernels, all of which stay within their buffers whatever they are given.
pub struct Kernels {
    /// `y = x + 1`.
    pub add1: Map,
    /// `y = 2 x`.
    pub mul2: Map,
    /// `x += 1`.
    pub inc: Kernel<(InOut<f32>, Len<0>), Cuda>,
    /// `y += a x`.
    pub axpy: Kernel<Axpy, Cuda>,
    /// `y[i] = x[t[i]]`.
    pub gather: Kernel<Gather, Cuda>,
    /// The sum of everything.
    pub mixed: Kernel<(u8, Mixed, Out<f64>, Len<2>, u16), Cuda>,
    /// `x += 1`, after so many cycles.
    pub spin: Kernel<(InOut<u32>, Len<0>, u64), Cuda>,
    /// Counts the threads that ran.
    pub count: Kernel<(InOut<u32>, Len<0>), Cuda>,
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Mixed {
    pub a: f32,
    pub b: u32,
    pub c: f64,
}

impl Kernels {
    pub fn load(device: &Device<Cuda>) -> Self {
        Kernels {
            add1: load(device, "add1"),
            mul2: load(device, "mul2"),
            inc: load(device, "inc"),
            axpy: load(device, "axpy"),
            gather: load(device, "gather"),
            mixed: load(device, "mixed"),
            spin: load(device, "spin"),
            count: load(device, "count"),
        }
    }
}

pub fn program<S: dacapo::Signature>(name: &str) -> Program<S> {
    // SAFETY: every kernel of the source compares its index with the lengths of all that it touches, writes only what its
    // signature says, has no other state than `count`'s atomic one, and ends.
    unsafe { Program::<S>::new(name).cuda(SOURCE, name) }
}

pub fn load<S: dacapo::Signature>(device: &Device<Cuda>, name: &str) -> Kernel<S, Cuda> {
    program(name).load(device).unwrap()
}

pub fn device() -> Option<(Device<Cuda>, Kernels)> {
    let device = device_with(DeviceOptions::new())?;
    let kernels = Kernels::load(&device);
    Some((device, kernels))
}

/// Unpacks the device, or ends the test.
#[macro_export]
macro_rules! device {
    () => {
        match $crate::support::device() {
            Some(found) => found,
            None => return,
        }
    };
}

/// The device without kernels, which take their time to compile, or the end of the test.
#[macro_export]
macro_rules! bare {
    () => {
        match $crate::support::device_with(dacapo::DeviceOptions::new()) {
            Some(device) => device,
            None => return,
        }
    };
}

/// Different values, of which none is what fresh memory holds.
pub fn ramp(len: usize) -> Vec<f32> {
    (0..len).map(|n| n as f32 + 1.0).collect()
}

pub fn written(stream: &mut impl Enqueue<Cuda>, data: &[f32]) -> Buf<f32> {
    let mut buffer = stream.alloc_scratch(data.len()).unwrap();
    stream.write(&mut buffer, data).unwrap();
    buffer
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Drives a future on this thread, which waits for nothing but the waker.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
