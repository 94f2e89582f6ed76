//! Fresh buffers, zeroed or not.

#![forbid(unsafe_code)]

use crate::access::Access;
use crate::backend::command::Work;
use crate::backend::{Backend, Command, Contents, Job, Region};
use crate::buffer::Buffer;
use crate::capture::recorder::Kind;
use crate::device::Zeroing;
use crate::error::{Error, Result};
use crate::kernel::Element;
use crate::kernel::args::UsesOf;
use crate::memory::Reserved;
use crate::memory::allocation::Allocation;
use crate::order::{Mark, Marks};
use crate::stream::StreamCore;
use crate::submit::{Route, wait_for};

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
        let mut uses = UsesOf::new();
        route.gather("alloc", &mut uses, |into| {
            into.buffer(buffer.as_slice(), Access::Write);
            into.scalar(0u8);
        });
        // What the user asked to be zeroed may be left out where nobody can tell; under `Always`, nothing is.
        let kind = if always { Kind::Plain } else { Kind::Zeroing };
        route.perform("alloc", &uses, Job(Work::Fill), kind, None)?;
    }
    Ok(buffer)
}

/// Zeroes `bytes` bytes that nobody has yet: whoever gets them waits for that, and finds them as unwritten as they were.
///
/// # Errors
/// What the driver says; nothing was enqueued.
pub(crate) fn zero<B: Backend>(core: &StreamCore<B>, bytes: usize, reserved: &mut Reserved<B>) -> Result<()> {
    let StreamCore { device, slot, by, .. } = core;
    let of = device.slot(*slot);
    let mut lane = device.lane(*slot);
    wait_for(device, *slot, &reserved.history)?;
    let Contents { page, offset, .. } = &*reserved.contents;
    // Of its own, so that the bytes still count as unwritten when it is done.
    let contents = Contents::new(page.clone(), *offset);
    let mut args = of.spares.take();
    args.regions.push(Region { contents: Some(contents), start: 0, end: bytes, access: Access::Write });
    args.scalars.push(0);
    let mark = Mark { slot: *slot, seq: lane.seq + 1 };
    let mut command = Command { job: Job(Work::Fill), args };
    if let Err(fault) = device.backend.submit(&of.queue, mark.seq, by, &mut command) {
        of.spares.give(command.args);
        return Err(device.poison.absorb(fault));
    }
    lane.seq = mark.seq;
    reserved.history = Marks::default();
    reserved.history.add(mark);
    Ok(())
}
