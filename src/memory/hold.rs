//! How buffers hold their allocations, and leave them to the next tenant.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::backend::Backend;
use crate::memory::allocation::{Allocation, Home, Tie};
use crate::memory::pool::{Fit, Lease};

/// A buffer's hold on its allocation.
///
/// The last one leaves the allocation as it is to its pool, for the next tenant of the same size: for buffers that come
/// and go, nothing is taken apart and put together again.
pub(crate) struct Hold<B: Backend>(Arc<Allocation<B>>);

impl<B: Backend> Hold<B> {
    pub(crate) fn new(alloc: Arc<Allocation<B>>) -> Self {
        Hold(alloc)
    }
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
impl<B: Backend> Hold<B> {
    /// The allocation, if nobody else refers to it.
    pub(crate) fn sole(&mut self) -> Option<&mut Allocation<B>> {
        Arc::get_mut(&mut self.0)
    }
}

impl<B: Backend> Clone for Hold<B> {
    fn clone(&self) -> Self {
        Hold(self.0.clone())
    }
}

impl<B: Backend> std::ops::Deref for Hold<B> {
    type Target = Arc<Allocation<B>>;

    fn deref(&self) -> &Arc<Allocation<B>> {
        &self.0
    }
}

impl<B: Backend> Drop for Hold<B> {
    fn drop(&mut self) {
        // Alone, it stays alone but for a look at who lives on a page, which ends by itself. Two last holds that go at
        // once may both see each other, and then the allocation is taken apart.
        if Arc::strong_count(&self.0) == 1 {
            stash(&self.0);
        }
    }
}

/// Leaves an allocation that nobody uses any more to its pool, if it is of a kind that the pool keeps.
fn stash<B: Backend>(alloc: &Arc<Allocation<B>>) {
    let mut state = alloc.state.lock();
    let (slot, bytes) = match state.home {
        Home::Placed { lease: Lease::Block { slot, bytes, .. }, .. } => (slot, bytes),
        Home::Placed { lease: Lease::Whole { slot, bytes, fit: Fit::Close, .. }, .. } => (slot, bytes),
        _ => return,
    };
    if state.is_pinned() {
        return;
    }
    let Some(device) = state.device.cut() else { return };
    if !device.slot(slot).pool.lock().stash(alloc, bytes) {
        state.device = Tie::Keeps(device);
        return;
    }
    // The last hold on a device takes the pool with it, and this allocation.
    drop(state);
    drop(device);
}
