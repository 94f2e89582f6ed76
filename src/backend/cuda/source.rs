//! Kernels' sources for CUDA.

#![allow(unsafe_code, reason = "what a kernel promises cannot be checked")]

use std::sync::Arc;

use crate::kernel::{Program, Signature};

/// What a program has for this backend.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) form: Form,
    /// The name of the function.
    pub(crate) entry: Arc<str>,
}

#[derive(Clone)]
pub(crate) enum Form {
    /// PTX or a cubin, with a zero byte behind it.
    Image(Arc<[u8]>),
    /// CUDA C++.
    #[cfg(feature = "nvrtc")]
    Text(Arc<str>),
}

impl<S: Signature> Program<S> {
    /// The source for CUDA: `image` is PTX, as text, or a cubin, and `entry` the name of its function.
    ///
    /// The function has the signature's parameters in their order: an address of the device for each `In`, `Out`, `InOut`
    /// and `Uniform` (null where the argument has no elements), scalars by value, a 64-bit unsigned integer for each `Len`.
    /// How many there are and their sizes are checked when it is loaded.
    ///
    /// # Safety
    /// For **every** grid, every argument and every length of the arguments that safe code can pass, and whatever bytes the
    /// buffers hold, a launch of the function
    /// - accesses no memory but the elements of its arguments, and its own: take lengths as [`Len`](crate::Len) and compare
    ///   every index with them;
    /// - writes nothing through an `In` or a `Uniform`;
    /// - has no race on memory that makes its behaviour undefined, also beside launches that share no argument with it
    ///   (so that it has no mutable `__device__` variables);
    /// - ends.
    ///
    /// An `Out` that is not written in full shows stale bytes of this process, which is not undefined behaviour.
    pub unsafe fn ptx(mut self, image: impl AsRef<[u8]>, entry: &str) -> Self {
        let mut bytes = image.as_ref().to_vec();
        bytes.push(0);
        self.sources.cuda = Some(Source { form: Form::Image(bytes.into()), entry: entry.into() });
        self
    }

    /// The source for CUDA, as CUDA C++ that is compiled for the device's architecture when the program is loaded. `entry`
    /// is the name of an `extern "C" __global__` function.
    ///
    /// # Safety
    /// As for [`ptx`](Program::ptx).
    #[cfg(feature = "nvrtc")]
    pub unsafe fn cuda(mut self, source: &str, entry: &str) -> Self {
        self.sources.cuda = Some(Source { form: Form::Text(source.into()), entry: entry.into() });
        self
    }
}
