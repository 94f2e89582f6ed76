//! Kernels that promise nothing.

#![forbid(unsafe_code)]

use static_assertions::assert_impl_all;

use crate::backend::Backend;
use crate::backend::host::Host;
use crate::kernel::{In, Kernel, Out, Signature};
use crate::state::State;

/// A loaded program with a source that promises nothing; made by [`Program::load`](crate::Program), and launched by
/// [`launch_unchecked`](crate::LaunchUnchecked::launch_unchecked) alone.
///
/// Cheap to clone. A graph keeps the kernels that it launches alive, so that a handle may be dropped at any time.
pub struct UncheckedKernel<S: Signature, B: Backend = Host> {
    /// Never lent out as what it is: a clone of it could be launched by safe code.
    pub(crate) kernel: Kernel<S, B>,
}

impl<S: Signature, B: Backend> UncheckedKernel<S, B> {
    pub(crate) fn new(kernel: Kernel<S, B>) -> Self {
        UncheckedKernel { kernel }
    }

    /// The program's name.
    pub fn name(&self) -> &str {
        self.kernel.name()
    }

    /// As [`Kernel::with_state`].
    pub fn with_state(&self, state: &State<B>) -> Self {
        UncheckedKernel { kernel: self.kernel.with_state(state) }
    }

    /// Threads of one block, in x, y and z.
    pub fn block(&self) -> [u32; 3] {
        self.kernel.block()
    }
}

impl<S: Signature, B: Backend> Clone for UncheckedKernel<S, B> {
    fn clone(&self) -> Self {
        UncheckedKernel { kernel: self.kernel.clone() }
    }
}

impl<S: Signature, B: Backend> std::fmt::Debug for UncheckedKernel<S, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UncheckedKernel").field("name", &self.name()).field("block", &self.block()).finish()
    }
}

assert_impl_all!(UncheckedKernel<(In<f32>, Out<f32>, f32)>: Send, Sync, Clone);
