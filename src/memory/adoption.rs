//! Memory of another library's that became a buffer, on its way back.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::backend::Backend;
use crate::buffer::Buffer;
use crate::callback;
use crate::device::DeviceCore;
use crate::error::{Error, Hindrance, Result};
use crate::kernel::Element;
use crate::memory::allocation::Home;
use crate::memory::pool::Lease;
use crate::order::Marks;

/// Takes the memory out of a buffer that nothing else refers to, by `hand_over`, which orders its owner after everything that
/// was enqueued on it.
///
/// # Errors
/// [`Error::Kept`], [`Error::Tainted`], [`Error::InCallback`], [`Error::DeviceLost`], and those of `hand_over`: the buffer is
/// what it was.
pub(crate) fn take_back<T: Element, B: Backend, R>(
    buffer: &mut Buffer<T, B>,
    operation: &'static str,
    hand_over: impl FnOnce(&Arc<DeviceCore<B>>, &B::Memory, &Marks) -> Result<R>,
) -> Result<R> {
    callback::refuse(operation)?;
    if let Some(because) = hindrance(buffer) {
        return Err(Error::Kept { operation, because });
    }
    let bytes = buffer.as_slice().parts().0.bytes;
    let shared = Error::Kept { operation, because: Hindrance::Shared };
    let Some(alloc) = buffer.sole() else { return Err(shared) };
    let state = alloc.state.get_mut();
    let (Some(contents), Some(device)) = (state.resolve(operation)?.cloned(), state.device()) else {
        return Err(Error::Kept { operation, because: Hindrance::NotAdopted });
    };
    device.poison.check()?;
    if let Some(cause) = contents.taint.find(0..bytes) {
        return Err(Error::Tainted { cause });
    }
    let history = state.uses.history(&(0..bytes));
    let theirs = hand_over(&device, &contents.page.memory, &history)?;
    // Nothing is left to give back.
    state.abandon_adopted(&device);
    Ok(theirs)
}

/// What stands in the way of giving a buffer back, as far as it shows.
fn hindrance<T: Element, B: Backend>(buffer: &Buffer<T, B>) -> Option<Hindrance> {
    let (alloc, start, end) = buffer.as_slice().parts();
    let state = alloc.state.lock();
    match &state.home {
        Home::Placed { lease: Lease::Adopted { .. }, .. } => {}
        _ => return Some(Hindrance::NotAdopted),
    }
    if (start, end) != (0, alloc.bytes) {
        return Some(Hindrance::Part);
    }
    if state.is_in_graph() {
        return Some(Hindrance::InGraph);
    }
    (state.pins > 0).then_some(Hindrance::Held)
}
