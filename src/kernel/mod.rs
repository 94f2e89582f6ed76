//! Kernels: programs with a typed signature, loaded for one device.

#![forbid(unsafe_code)]

pub(crate) mod args;
pub(crate) mod blocks;
pub(crate) mod check;
pub(crate) mod grid;
pub(crate) mod lengths;
pub(crate) mod program;
pub(crate) mod signature;
pub(crate) mod tables;
pub(crate) mod unchecked;

use std::marker::PhantomData;
use std::sync::Arc;

use smallvec::SmallVec;
use static_assertions::assert_impl_all;

pub use args::{Arg, Args};
pub use blocks::{Blocks, IndirectGrid};
pub use grid::{Dims, Extent, Grid, GridLimit};
pub use program::{Checked, Program, Unchecked};
pub use signature::{Element, In, InOut, Len, Out, Param, Signature, Uniform};
pub use unchecked::UncheckedKernel;

use crate::backend::Backend;
use crate::backend::host::Host;
use crate::backend::sealed::Driver;
use crate::kernel::check::Checks;
use crate::kernel::lengths::Length;
use crate::kernel::signature::ParamKind;
use crate::state::State;

/// A program loaded for one device; made by [`Program::load`].
///
/// Cheap to clone. A graph keeps the kernels that it launches alive, so that a handle may be dropped at any time.
pub struct Kernel<S: Signature, B: Backend = Host> {
    pub(crate) loaded: Arc<Loaded<B>>,
    /// Here and not in what graphs share: they need none, and it is the user's to drop.
    pub(crate) checks: Checks,
    /// Tokens that each launch of this handle uses.
    pub(crate) states: SmallVec<[State<B>; 1]>,
    _signature: PhantomData<fn(S)>,
}

/// What a kernel shares with its clones and with the graphs that launch it.
///
/// In the order of its fields: what a launch needs is side by side.
#[repr(C)]
pub(crate) struct Loaded<B: Driver> {
    pub(crate) device: u32,
    pub(crate) block: [u32; 3],
    /// As many blocks as a launch can have along each axis.
    pub(crate) most_blocks: [u64; 3],
    pub(crate) lengths: &'static [Option<Length>],
    pub(crate) code: B::Code,
    pub(crate) params: &'static [ParamKind],
    pub(crate) name: Arc<str>,
}

impl<S: Signature, B: Backend> Kernel<S, B> {
    pub(crate) fn new(loaded: Loaded<B>) -> Self {
        let (loaded, checks) = (Arc::new(loaded), Checks::default());
        Kernel { loaded, checks, states: SmallVec::new(), _signature: PhantomData }
    }

    pub(crate) fn with_checks(self, checks: &Checks) -> Self {
        Kernel { checks: checks.clone(), ..self }
    }

    /// The program's name.
    pub fn name(&self) -> &str {
        &self.loaded.name
    }

    /// A handle to the same kernel, whose launches keep their order with whatever else uses `state`: for a kernel with
    /// state that its arguments do not show. May be called again, for another token.
    pub fn with_state(&self, state: &State<B>) -> Self {
        let mut handle = self.clone();
        handle.states.push(state.clone());
        handle
    }

    /// Threads of one block, in x, y and z.
    pub fn block(&self) -> [u32; 3] {
        self.loaded.block
    }
}

impl<S: Signature, B: Backend> Clone for Kernel<S, B> {
    fn clone(&self) -> Self {
        let (loaded, checks) = (self.loaded.clone(), self.checks.clone());
        Kernel { loaded, checks, states: self.states.clone(), _signature: PhantomData }
    }
}

impl<S: Signature, B: Backend> std::fmt::Debug for Kernel<S, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel").field("name", &self.name()).field("block", &self.block()).finish()
    }
}

assert_impl_all!(Kernel<(In<f32>, Out<f32>, f32)>: Send, Sync, Clone);
