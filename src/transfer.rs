//! Writes from the host, and reads to it.

#![forbid(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::access::Access;
use crate::backend::command::Work as What;
use crate::backend::{Backend, Job, Waiter};
use crate::buffer::Slice;
use crate::capture::recorder::Kind;
use crate::enqueue::sealed::Route as Routed;
use crate::error::{Error, Result};
use crate::kernel::Element;
use crate::kernel::args::UsesOf;
use crate::layout::{Layout, Pitch};
use crate::memory::drops;
use crate::memory::staging::{OwnedBytes, Room, Staged};
use crate::order::Mark;
use crate::readback::{ReadFuture, Readback, elements, landed};
use crate::stream::StreamCore;
use crate::submit::{Problem, Route};
use crate::wait;

/// Host memory with elements of type `T`, for [`Enqueue::write`](crate::Enqueue::write): borrowed, to be copied before
/// the call returns (`&[T]`, `&[T; N]`, `&Vec<T>` and their like), or handed over, to be kept as it is until the device
/// has it (`Vec<T>`, `Box<[T]>`, `Arc<[T]>`).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no host memory with elements of type `{T}`",
    label = "no elements of type `{T}` can be taken from here",
    note = "lend a slice, an array or a `Vec` by `&`, or hand over a `Vec`, a `Box<[_]>` or an `Arc<[_]>` by value",
    note = "nothing is converted: the elements are of the type that the destination has; from buffer to buffer it is `copy`"
)]
pub trait HostData<T>: sealed::HostData<T> {}

/// The bytes of a [`HostData`].
pub enum Bytes<'d> {
    /// Good until the call returns.
    Lent(&'d [u8]),
    /// Good for as long as they are needed.
    Given(Room),
}

pub(crate) mod sealed {
    use super::Bytes;

    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be made host memory to write from",
        label = "only slices, arrays and vectors of plain data are",
        note = "a type that owns elements lends them as a slice instead"
    )]
    pub trait HostData<T> {
        fn len(&self) -> usize;
        fn bytes<'d>(self) -> Bytes<'d>
        where
            Self: 'd;
    }
}

/// What was handed over, with how much memory it keeps.
struct Theirs<C, T> {
    data: C,
    held: usize,
    _element: PhantomData<T>,
}

impl<C: AsRef<[T]> + Send + Sync, T: Element + Send + Sync> OwnedBytes for Theirs<C, T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self.data.as_ref())
    }

    fn held(&self) -> usize {
        self.held
    }
}

macro_rules! lent {
    ($(($($generic:tt)*) $ty:ty;)*) => { $(
        #[diagnostic::do_not_recommend]
        impl<'h, T: Element $($generic)*> sealed::HostData<T> for $ty {
            fn len(&self) -> usize {
                <[T]>::len(&**self)
            }
            fn bytes<'d>(self) -> Bytes<'d>
            where
                Self: 'd,
            {
                Bytes::Lent(bytemuck::cast_slice::<T, u8>(self))
            }
        }
        #[diagnostic::do_not_recommend]
        impl<'h, T: Element $($generic)*> HostData<T> for $ty {}
    )* };
}

macro_rules! given {
    ($($ty:ty, $this:ident => $held:expr;)*) => { $(
        #[diagnostic::do_not_recommend]
        impl<T: Element + Send + Sync> sealed::HostData<T> for $ty {
            fn len(&self) -> usize {
                <[T]>::len(self)
            }
            fn bytes<'d>(self) -> Bytes<'d>
            where
                Self: 'd,
            {
                let $this = &self;
                let held = $held;
                Bytes::Given(Room::theirs(Box::new(Theirs { data: self, held, _element: PhantomData::<T> })))
            }
        }
        #[diagnostic::do_not_recommend]
        impl<T: Element + Send + Sync> HostData<T> for $ty {}
    )* };
}

lent! {
    () &'h [T];
    (, const N: usize) &'h [T; N];
    () &'h Vec<T>;
    () &'h Box<[T]>;
    () &'h Arc<[T]>;
    () &'h Arc<Vec<T>>;
    () &'h &[T];
    () &'h mut [T];
    (, const N: usize) &'h mut [T; N];
    () &'h mut Vec<T>;
}

given! {
    Vec<T>, data => data.capacity() * size_of::<T>();
    Box<[T]>, data => size_of_val::<[T]>(data);
    Arc<[T]>, data => size_of_val::<[T]>(data);
}

/// Writes all of `data` to `to`.
pub(crate) fn write<T: Element, B: Backend>(
    route: &mut Route<'_, B>,
    to: Slice<'_, T, B>,
    data: impl HostData<T>,
) -> Result<()> {
    let problem = mismatch("write", data.len(), to.len()).map(Box::new);
    put(route, "write", to, data, None, Access::Write, problem)
}

/// Writes all of `data` to the rows of `layout` in `to`.
pub(crate) fn write_pitched<T: Element, B: Backend>(
    route: &mut Route<'_, B>,
    to: Slice<'_, T, B>,
    layout: &Layout,
    data: impl HostData<T>,
) -> Result<()> {
    const OPERATION: &str = "write_pitched";
    let problem = mismatch(OPERATION, data.len(), layout.len()).map(Box::new);
    match to.slice(..layout.span()) {
        Ok(rows) => {
            let pitch = layout.pitch::<T>();
            // Another operation's bytes may lie in the padding: to the order of things, they are used as well.
            let access = if pitch.is_some() { Access::ReadWrite } else { Access::Write };
            put(route, OPERATION, rows, data, pitch, access, problem)
        }
        // Which bytes were meant is not known, so that all of them count as unwritten.
        Err(error) => put(route, OPERATION, to, data, None, Access::Write, problem.or(Some(Box::new(error)))),
    }
}

fn put<T: Element, B: Backend>(
    route: &mut Route<'_, B>,
    operation: &'static str,
    to: Slice<'_, T, B>,
    data: impl HostData<T>,
    pitch: Option<Pitch>,
    access: Access,
    problem: Problem,
) -> Result<()> {
    let mut uses = UsesOf::new();
    let problem = problem.or(route.gather(operation, &mut uses, |into| into.buffer(to, access)));
    if to.is_empty() && problem.is_none() {
        return Ok(());
    }
    let bytes = if problem.is_none() { stage(route, data)? } else { Arc::default() };
    route.perform(operation, &uses, Job(What::Write { bytes, pitch }), Kind::Plain, problem).map(drop)
}

/// The bytes as the operation is to own them: pinned, unless they were handed over, or a graph keeps them.
fn stage<T, B: Backend>(route: &mut Route<'_, B>, data: impl HostData<T>) -> Result<Arc<Staged>> {
    let StreamCore { device, slot, .. } = &*route.core;
    match data.bytes() {
        Bytes::Given(room) => Ok(device.staging.staged(room)),
        // A graph keeps its bytes for as long as it lives, and would drain the pool.
        Bytes::Lent(bytes) if route.window.is_some() => Ok(device.staging.staged(Room::copy_of(bytes))),
        Bytes::Lent(bytes) => {
            // First, so that what this lets go of serves these bytes already.
            drops::make_room(device, device.slot(*slot), *slot);
            let staged = device.staging.copy(bytes, |bytes| device.backend.pin(bytes));
            staged.map_err(|fault| device.poison.absorb(fault))
        }
    }
}

/// The elements of `from`, or of the rows of `layout` in it.
pub(crate) fn fetch<T: Element, B: Backend, S: Routed<B> + ?Sized>(
    stream: &mut S,
    from: Slice<'_, T, B>,
    layout: Option<&Layout>,
    timeout: Option<Duration>,
) -> Result<Vec<T>> {
    let operation = name(layout);
    let (readback, mark) = enqueue_read(&mut stream.route(operation)?, operation, from, layout)?;
    receive(stream.core(), operation, (readback, mark), timeout, elements)
}

/// [`fetch`] into `into`, which has as many elements.
pub(crate) fn fetch_into<T: Element, B: Backend, S: Routed<B> + ?Sized>(
    stream: &mut S,
    from: Slice<'_, T, B>,
    layout: Option<&Layout>,
    into: &mut [T],
    timeout: Option<Duration>,
) -> Result<()> {
    let operation = name(layout);
    let len = layout.map_or(from.len(), Layout::len);
    if let Some(error) = mismatch(operation, len, into.len()) {
        return Err(error);
    }
    let (readback, mark) = enqueue_read(&mut stream.route(operation)?, operation, from, layout)?;
    receive(stream.core(), operation, (readback, mark), timeout, |bytes| {
        copy(bytemuck::cast_slice_mut(into), bytes);
    })
}

/// Enqueues a read of `from` that is waited for elsewhere.
pub(crate) fn read_async<T: Element, B: Backend>(
    route: &mut Route<'_, B>,
    from: Slice<'_, T, B>,
) -> Result<ReadFuture<T>> {
    enqueue_read(route, "read_async", from, None).map(|(readback, _)| ReadFuture::new(readback))
}

fn name(layout: Option<&Layout>) -> &'static str {
    if layout.is_some() { "read_pitched" } else { "read" }
}

/// Enqueues a read; returns where it lands, and what must have passed by then.
fn enqueue_read<T: Element, B: Backend>(
    route: &mut Route<'_, B>,
    operation: &'static str,
    from: Slice<'_, T, B>,
    layout: Option<&Layout>,
) -> Result<(Arc<Readback>, Mark)> {
    let (from, len, pitch) = match layout {
        Some(layout) => (from.slice(..layout.span())?, layout.len(), layout.pitch::<T>()),
        None => (from, from.len(), None),
    };
    let mark = Mark { slot: route.core.slot, seq: 0 };
    let mut uses = UsesOf::new();
    let problem = route.gather(operation, &mut uses, |into| into.buffer(from, Access::Read));
    if from.is_empty() && problem.is_none() {
        return Ok((Readback::of_nothing(), mark));
    }
    let device = &route.core.device;
    drops::make_room(device, device.slot(route.core.slot), route.core.slot);
    let landing = device.staging.landing(len * size_of::<T>(), |bytes| device.backend.pin(bytes));
    let readback = landing.map_err(|fault| device.poison.absorb(fault))?;
    let job = Job(What::Read { into: readback.clone(), pitch });
    let mark = route.perform(operation, &uses, job, Kind::Plain, problem)?.unwrap_or(mark);
    Ok((readback, mark))
}

/// Waits until the bytes are there, and hands them to `take`.
fn receive<B: Backend, T>(
    core: &StreamCore<B>,
    operation: &'static str,
    (readback, mark): (Arc<Readback>, Mark),
    timeout: Option<Duration>,
    take: impl FnOnce(&[u8]) -> T,
) -> Result<T> {
    wait::block(&core.device, Waiter::Stream(core.id), operation, mark, timeout)?;
    let taken = landed(&readback).map(|room| take(room.bytes()));
    // First, so that what carried the bytes is free for the next transfer.
    drop(readback);
    drops::release(&core.device, core.slot);
    taken
}

/// Copies between ranges of one length.
fn copy(to: &mut [u8], from: &[u8]) {
    debug_assert_eq!(to.len(), from.len(), "lengths are compared before anything is enqueued");
    let len = to.len().min(from.len());
    if let (Some(to), Some(from)) = (to.get_mut(..len), from.get(..len)) {
        to.copy_from_slice(from);
    }
}

pub(crate) fn mismatch(operation: &'static str, source_len: usize, target_len: usize) -> Option<Error> {
    (source_len != target_len).then_some(Error::LengthMismatch { operation, source_len, target_len })
}
