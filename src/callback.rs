//! Whether this thread runs code on behalf of a device.
//!
//! A kernel or a host callback that waited for the device would wait for itself; on CUDA a callback may not call the
//! driver at all. So every call of ours asks here first.

#![forbid(unsafe_code)]

use std::any::Any;
use std::cell::Cell;
use std::hint::cold_path;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::error::{Error, Result};

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Marks this thread as running user code for a device, until dropped.
pub(crate) struct OnDevice(());

impl OnDevice {
    pub(crate) fn enter() -> Self {
        DEPTH.with(|depth| depth.set(depth.get() + 1));
        OnDevice(())
    }
}

impl Drop for OnDevice {
    fn drop(&mut self) {
        // A thread that is being torn down runs no kernel any more, so a missing cell is as good as zero.
        let _ = DEPTH.try_with(|depth| depth.set(depth.get().saturating_sub(1)));
    }
}

/// Whether the calling thread is inside a kernel or a host callback.
#[inline]
pub(crate) fn inside() -> bool {
    DEPTH.try_with(|depth| depth.get() > 0).unwrap_or(false)
}

/// Runs code of the user's that nobody asked to report to, such as a drop or a waker, on a thread of ours, which must
/// outlive a panic in it.
pub(crate) fn shielded(run: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        // The payload is the user's as well, and its drop could panic again: leaking it is the end of that.
        std::mem::forget(panic);
    }
}

/// Refuses `operation` inside a kernel or a host callback.
#[inline]
pub(crate) fn refuse(operation: &'static str) -> Result<()> {
    if inside() {
        cold_path();
        return Err(Error::InCallback { operation });
    }
    Ok(())
}

/// What a panic said.
pub(crate) fn panic_message(panic: Box<dyn Any + Send>) -> Arc<str> {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("a panic without a message").into();
    shielded(|| drop(panic));
    text
}
