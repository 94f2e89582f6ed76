//! Kernels' sources for CUDA.

#![allow(unsafe_code, reason = "what a kernel promises cannot be checked")]

use std::sync::Arc;

#[cfg(feature = "nvrtc")]
use crate::backend::cuda::text::SourceText;
use crate::backend::fault::Severity;
use crate::backend::{Call, Fault};
use crate::kernel::program::Sources;
use crate::kernel::{Program, Signature, Unchecked};

/// What a program has for this backend.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) form: Form,
    /// The name of the function.
    pub(crate) entry: Arc<str>,
    /// The shape of the launches that somebody promised safety for.
    promised: Option<Shape>,
}

#[derive(Clone)]
pub(crate) enum Form {
    /// PTX or a cubin, with a zero byte behind it.
    Image(Arc<[u8]>),
    /// CUDA C++.
    #[cfg(feature = "nvrtc")]
    Text(Arc<SourceText>),
}

/// What a program says of every launch.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    block: [u32; 3],
    shared_memory: usize,
}

impl Shape {
    fn of(sources: &Sources) -> Self {
        Shape { block: sources.block, shared_memory: sources.shared_memory }
    }
}

impl Source {
    /// Refuses a program that safe code changed after the promise.
    pub(crate) fn keep_promise(&self, sources: &Sources) -> Result<(), Fault> {
        if self.promised.is_none_or(|promised| promised == Shape::of(sources)) {
            return Ok(());
        }
        let name = &sources.name;
        let message = format!(
            "`{name}`: its block or its shared memory was changed after `.ptx(..)` or `.cuda(..)`, whose promise is for what they were; set them before"
        );
        Err(Fault::new(Call::Load, Severity::Call, message))
    }
}

impl Form {
    fn image(image: &[u8]) -> Self {
        let mut bytes = image.to_vec();
        bytes.push(0);
        Form::Image(bytes.into())
    }
}

impl<S: Signature, L> Program<S, L> {
    /// The source for CUDA: `image` is PTX, as text, or a cubin, and `entry` the name of its function.
    ///
    /// The function has the signature's parameters in their order: an address of the device for each `In`, `Out`, `InOut`
    /// and `Uniform` (null where the argument has no elements), scalars by value, a 64-bit unsigned integer for each `Len`.
    /// How many there are and their sizes are checked when it is loaded.
    ///
    /// # Safety
    /// With the [block](Program::block) and the [shared memory](Program::shared_memory) that the program has at this call, for
    /// **every** grid, every argument and every length of the arguments that safe code can pass and the
    /// [checks](Program::check) given so far let through, and whatever bytes the buffers hold, a launch of the function
    /// - accesses no memory but the elements of its arguments, and its own: take lengths as [`Len`](crate::Len) and compare
    ///   every index with them, or have a check compare them with the scalars that indices come from;
    /// - writes nothing through an `In` or a `Uniform`;
    /// - has no race on memory that makes its behaviour undefined, also beside launches that share no argument with it
    ///   (so that it has no mutable `__device__` variables);
    /// - ends.
    ///
    /// An `Out` that is not written in full shows stale bytes of this process, which is not undefined behaviour.
    pub unsafe fn ptx(self, image: impl AsRef<[u8]>, entry: &str) -> Self {
        let promised = Some(Shape::of(&self.sources));
        self.with(Form::image(image.as_ref()), entry, promised)
    }

    /// The source for CUDA as [`ptx`](Program::ptx) takes it, of a function that promises nothing: the program loads as an
    /// [`UncheckedKernel`](crate::UncheckedKernel), each launch of which is `unsafe`.
    pub fn ptx_unchecked(self, image: impl AsRef<[u8]>, entry: &str) -> Program<S, Unchecked> {
        self.with(Form::image(image.as_ref()), entry, None).marked()
    }

    /// The source for CUDA, as CUDA C++ that is compiled for the device's architecture when the program is loaded: text, or a
    /// [`SourceText`] with options of the compiler. `entry` is the name of an `extern "C" __global__` function.
    ///
    /// What was compiled is kept on disk (see [`KernelCache`](crate::cuda::KernelCache)).
    ///
    /// # Safety
    /// As for [`ptx`](Program::ptx).
    #[cfg(feature = "nvrtc")]
    pub unsafe fn cuda(self, source: impl Into<SourceText>, entry: &str) -> Self {
        let promised = Some(Shape::of(&self.sources));
        self.with(Form::Text(Arc::new(source.into())), entry, promised)
    }

    /// The source for CUDA as [`cuda`](Program::cuda) takes it, of a function that promises nothing: the program loads as an
    /// [`UncheckedKernel`](crate::UncheckedKernel), each launch of which is `unsafe`.
    #[cfg(feature = "nvrtc")]
    pub fn cuda_unchecked(self, source: impl Into<SourceText>, entry: &str) -> Program<S, Unchecked> {
        self.with(Form::Text(Arc::new(source.into())), entry, None).marked()
    }

    fn with(mut self, form: Form, entry: &str, promised: Option<Shape>) -> Self {
        self.sources.cuda = Some(Source { form, entry: entry.into(), promised });
        self
    }
}
