//! `Work`: a stream, lent to a closure.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::marker::PhantomData;

use static_assertions::assert_not_impl_any;

use crate::backend::Backend;
use crate::backend::host::Host;
use crate::capture::window::WindowGuard;
use crate::enqueue::sealed::Route as Routed;
use crate::error::Result;
use crate::stream::StreamCore;
use crate::submit::Route;

/// A stream, lent to the closure of [`record`](crate::Stream::record), [`capture`](crate::Stream::capture),
/// [`profile`](crate::Enqueue::profile) or [`allocating`](crate::Stream::allocating).
///
/// It cannot leave the closure, and two of them cannot be swapped, since each is bound to its own stream (`'w` is
/// invariant). What it enqueues executes or is recorded as [`pass`](Work::pass) says.
pub struct Work<'w, B: Backend = Host> {
    core: &'w mut StreamCore<B>,
    window: Option<&'w WindowGuard<B>>,
    pass: Pass,
    /// Invariant in `'w`, and driven by one thread at a time.
    _bound: PhantomData<(Cell<&'w ()>, Cell<()>)>,
}

/// Which run of a closure this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// It executes, and is no part of a capture.
    Direct,
    /// It executes, before the same closure is recorded.
    WarmUp,
    /// It is recorded, and nothing executes.
    Recording,
}

impl<'w, B: Backend> Work<'w, B> {
    pub(crate) fn lend(core: &'w mut StreamCore<B>, window: Option<&'w WindowGuard<B>>, pass: Pass) -> Self {
        Work { core, window, pass, _bound: PhantomData }
    }

    /// Which run of the closure this is.
    pub fn pass(&self) -> Pass {
        self.pass
    }
}

#[diagnostic::do_not_recommend]
impl<B: Backend> Routed<B> for Work<'_, B> {
    fn route(&mut self, operation: &'static str) -> Result<Route<'_, B>> {
        Route::open(self.core, self.window, operation)
    }

    fn core(&self) -> &StreamCore<B> {
        self.core
    }
}

impl<B: Backend> crate::Enqueue<B> for Work<'_, B> {}

impl<B: Backend> std::fmt::Debug for Work<'_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work")
            .field("stream", &self.core.id)
            .field("pass", &self.pass)
            .finish_non_exhaustive()
    }
}

assert_not_impl_any!(Work<'static>: Sync, Clone);
