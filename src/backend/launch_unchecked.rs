//! The `unsafe` launch.

#![allow(unsafe_code, reason = "what such a kernel does cannot be checked, and its caller answers for it")]

use crate::backend::Backend;
use crate::enqueue::Enqueue;
use crate::error::Result;
use crate::kernel::{Args, Blocks, Signature, UncheckedKernel};

/// Launching kernels that promise nothing: on everything that work can be [enqueued](Enqueue) on.
///
/// Not in the prelude, so that a file which needs it says so at its top.
pub trait LaunchUnchecked<B: Backend>: Enqueue<B> {
    /// Launches `kernel` over `grid` with one tuple of arguments: a [`launch`](Enqueue::launch) in all else. Arguments and
    /// limits are checked, the kernel's own [checks](crate::Program::check) too.
    ///
    /// # Safety
    /// Where the device's source for the kernel is one that promises nothing, the caller promises it for this one call. With
    /// this grid, with these arguments of these lengths, and whatever bytes the buffers hold by the time it runs, the function
    /// - accesses no memory but the elements of its arguments, and its own;
    /// - writes nothing through an `In` or a `Uniform`;
    /// - has no race on memory that makes its behaviour undefined, also beside launches that share no argument with it;
    /// - ends.
    ///
    /// While the stream records, nothing runs now, and the promise is for every replay of the graph, and of every graph that
    /// embeds it: the grid, scalars, tables and places of the buffers are those of this call, and safe code may write
    /// anything to the buffers between one replay and the next. An [`AnyStream`](crate::AnyStream) records or runs as its
    /// phase says, so that the promise is for both.
    ///
    /// On a device whose source is safe (the host's) there is nothing to promise.
    ///
    /// # Errors
    /// As for [`launch`](Enqueue::launch). The outputs are tainted, and nothing of the promise was needed.
    ///
    /// # Examples
    /// ```no_run
    /// # #[cfg(feature = "nvrtc")]
    /// # fn scale() -> dacapo::Result<()> {
    /// use dacapo::LaunchUnchecked;
    /// use dacapo::cuda::Cuda;
    /// use dacapo::prelude::*;
    ///
    /// // It trusts `n`, which is the caller's.
    /// const SOURCE: &str = r#"
    ///     extern "C" __global__ void scale(float* x, unsigned n, float a) {
    ///         unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    ///         if (i < n) x[i] *= a;
    ///     }"#;
    /// let device = Device::<Cuda>::new(0)?;
    /// let mut stream = device.stream()?;
    /// let program = Program::<(InOut<f32>, u32, f32)>::new("scale").cuda_unchecked(SOURCE, "scale");
    /// let scale = program.load(&device)?;
    /// let mut x = stream.alloc::<f32>(1000)?;
    /// // SAFETY: `x` has 1000 elements, and each thread below 1000 touches its own.
    /// unsafe { stream.launch_unchecked(&scale, Grid::covering(1000), (&mut x, 1000u32, 2.0f32)) }
    /// # }
    /// # fn main() {}
    /// ```
    unsafe fn launch_unchecked<S: Signature, A: Args<S, B>>(
        &mut self,
        kernel: &UncheckedKernel<S, B>,
        grid: impl Blocks<B>,
        args: A,
    ) -> Result<()> {
        self.launch(&kernel.kernel, grid, args)
    }
}

impl<B: Backend, E: Enqueue<B> + ?Sized> LaunchUnchecked<B> for E {}
