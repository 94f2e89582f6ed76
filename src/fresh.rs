//! Fresh buffers, zeroed or not.

#![forbid(unsafe_code)]

use crate::access::Access;
use crate::backend::command::Work;
use crate::backend::{Backend, Job};
use crate::buffer::Buffer;
use crate::capture::recorder::Kind;
use crate::device::Zeroing;
use crate::error::{Error, Result};
use crate::kernel::Element;
use crate::memory::allocation::Allocation;
use crate::submit::Route;

/// What a fresh buffer holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fresh {
    Zeroed,
    Scratch,
}

/// A buffer of `len` elements: of memory that is there now, or, while the route records, a name.
///
/// # Errors
/// `BufferTooBig`, `OutOfMemory`, and what enqueueing the zeroing says; nothing is allocated.
pub(crate) fn allocate<T: Element, B: Backend>(
    route: &mut Route<'_, B>,
    len: usize,
    fresh: Fresh,
) -> Result<Buffer<T, B>> {
    const { assert!(size_of::<T>() > 0, "an element type without bytes cannot live in device memory") };
    const { assert!(align_of::<T>() <= 256, "an element type aligned to more than 256 bytes is not supported") };
    let limit = route.core.device.limits.max_buffer;
    let Some(bytes) = len.checked_mul(size_of::<T>()).filter(|bytes| *bytes <= limit) else {
        let requested = len.saturating_mul(size_of::<T>());
        return Err(route.fail(Error::BufferTooBig { requested, limit }));
    };
    let (device, slot) = (&route.core.device, route.core.slot);
    let always = device.zeroing == Zeroing::Always;
    let is_zeroed = fresh == Fresh::Zeroed || always;
    let alloc = match route.window {
        Some(guard) => {
            let alloc = Allocation::recorded(device, slot, bytes, guard.window.id);
            guard.record(|recorder| {
                recorder.refuse_if_doomed("alloc")?;
                recorder.bear(&alloc);
                Ok(())
            })?;
            alloc
        }
        None if bytes == 0 => Allocation::empty(device, slot),
        None => {
            let told = !is_zeroed && device.backend.refuses_unwritten_reads();
            let unwritten = told.then_some(Error::ReadBeforeWrite);
            Allocation::placed(device, slot, bytes, route.core.mode, unwritten)?
        }
    };
    let buffer = Buffer::new(alloc, len);
    if is_zeroed && bytes > 0 {
        route.gather("alloc", |into| {
            into.buffer(buffer.as_slice(), Access::Write);
            into.scalar(0u8);
        });
        // What the user asked to be zeroed may be left out where nobody can tell; under `Always`, nothing is.
        let kind = if always { Kind::Plain } else { Kind::Zeroing };
        route.perform("alloc", Job(Work::Fill), kind, None)?;
    }
    Ok(buffer)
}
