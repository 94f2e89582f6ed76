//! Raw sections: what another library enqueues, captured as one operation.

#![forbid(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;
use smallvec::SmallVec;
use static_assertions::assert_impl_all;

use crate::access::Access;
use crate::backend::command::Work;
use crate::backend::{Backend, Job};
use crate::buffer::{Buffer, Slice, SliceMut, Target};
use crate::capture::early::Early;
use crate::capture::recorder::{Kind, Recorder};
use crate::capture::window::WindowGuard;
use crate::error::Result;
use crate::kernel::args::{Gather, UseOf, UsesOf};
use crate::memory::allocation::Home;
use crate::memory::reserve::reserve;
use crate::raw::RawBuffer;
use crate::state::State;
use crate::submit::Route;

/// A backend on whose queues other libraries can enqueue work, by [`EnqueueRaw::raw`](crate::EnqueueRaw::raw).
///
/// Sealed, as [`Backend`] is.
#[diagnostic::on_unimplemented(
    message = "the backend `{Self}` has no raw sections",
    label = "no other library can enqueue work on `{Self}`",
    note = "CUDA has them, behind the feature `cuda`: `B: HasRaw` asks for a backend that does",
    note = "on the others, launch a kernel, or do it on the host by `host_call_with`"
)]
pub trait HasRaw: Backend + sealed::HasRaw {
    /// A queue in the form that other libraries take: on CUDA an `Arc<CudaStream>` of `cudarc`.
    type RawQueue;
}

/// What a library's call, or the code around it, failed with: any error, by `?`.
pub type SectionError = Box<dyn std::error::Error + Send + Sync>;

/// The arguments of a raw section: a tuple of up to 12 [`RawArg`]s.
#[diagnostic::on_unimplemented(
    message = "these are no arguments of a raw section on `{B}`",
    label = "the arguments are `{Self}`",
    note = "pass one tuple of up to 12; a single one is `(&buffer,)`, none is `()`"
)]
pub trait RawArgs<B: Backend>: sealed::RawArgs<B> {
    /// What the section gets for them: a tuple of the same shape.
    type Addresses;
    #[doc(hidden)]
    fn addresses(of: &mut Places<'_>) -> Self::Addresses;
}

/// One argument of a raw section, and what the section gets for it.
///
/// | argument | the section | gets |
/// | --- | --- | --- |
/// | `&buffer`, a [`Slice`] | reads it | an [`Address`] |
/// | `&mut buffer`, a [`SliceMut`] | reads it, and may write it | an [`AddressMut`] |
/// | [`Overwrite`] of one of those | writes every element, whatever it held | an [`AddressMut`] |
/// | [`&State`](State) | uses what the token stands for | `()` |
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no argument of a raw section on `{B}`",
    label = "this argument does not fit",
    note = "pass `&buffer` or a `Slice` for what is read, `&mut buffer` or a `SliceMut` for what is written, `Overwrite(..)` around the latter for what is overwritten, `&state` for a token",
    note = "if you hold a `&mut buffer`, pass on `&*it` to read, `&mut *it` to write; scalars need not be passed: the section is a closure"
)]
pub trait RawArg<B: Backend>: sealed::RawArg<B> {
    /// What the section gets for it.
    type Address;
    #[doc(hidden)]
    fn address(of: &mut Places<'_>) -> Self::Address;
}

/// An argument of a raw section that it overwrites: every element, without reading any that it did not write itself.
///
/// Also for a workspace, whose contents mean nothing before the section and after it: as `&mut`, one that nothing ever
/// wrote would keep the section from running. As for [`Out`](crate::Out), a broken promise shows stale bytes of this
/// process.
#[derive(Debug)]
pub struct Overwrite<D>(pub D);

/// Where the elements of an argument are on the device, for a section that reads them.
#[derive(Debug)]
pub struct Address<T> {
    address: u64,
    len: usize,
    _elements: PhantomData<fn() -> T>,
}

/// Where the elements of an argument are on the device, for a section that writes them.
#[derive(Debug)]
pub struct AddressMut<T>(Address<T>);

impl<T> Address<T> {
    /// The first element's address; 0 if there are none.
    pub fn get(&self) -> u64 {
        self.address
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address as libraries want it, which the host cannot follow.
    pub fn as_ptr(&self) -> *const T {
        std::ptr::without_provenance(self.address as usize)
    }
}

impl<T> AddressMut<T> {
    /// The address as libraries want it, which the host cannot follow.
    pub fn as_mut_ptr(&self) -> *mut T {
        self.as_ptr().cast_mut()
    }
}

impl<T> std::ops::Deref for AddressMut<T> {
    type Target = Address<T>;

    fn deref(&self) -> &Address<T> {
        &self.0
    }
}

impl<T> Clone for Address<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Address<T> {}

/// How often a section is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// Once, now.
    Once,
    /// With each replay of the graphs that it becomes a part of.
    Replayed,
}

pub(crate) mod sealed {
    use super::*;
    use crate::backend::sealed::Driver;

    #[diagnostic::on_unimplemented(
        message = "the backend `{Self}` has no raw sections",
        label = "no other library can enqueue work on `{Self}`",
        note = "CUDA has them, behind the feature `cuda`: `B: HasRaw` asks for a backend that does"
    )]
    pub trait HasRaw: Driver {
        /// Runs `section` with a queue, and makes what it enqueues there something that is run later. Called with no lock
        /// held. What the section returns lives until the device is past the last run.
        fn capture<K: Send + 'static>(
            &self,
            runs: Runs,
            section: impl FnOnce(&<Self as super::HasRaw>::RawQueue) -> Result<K, SectionError>,
        ) -> Result<Self::Section>
        where
            Self: super::HasRaw;
    }

    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be made the arguments of a raw section",
        label = "only tuples are"
    )]
    pub trait RawArgs<B: Backend> {
        fn gather<'u>(&'u self, into: &mut Gather<'_, 'u, B>);
    }

    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be made an argument of a raw section",
        label = "only the buffers, slices and tokens of this crate are",
        note = "a type that owns a `Buffer` lends it as a `Slice` or a `SliceMut` instead"
    )]
    pub trait RawArg<B: Backend> {
        fn gather<'u>(&'u self, into: &mut Gather<'_, 'u, B>);
    }
}

/// Where the arguments with elements are, in their order: address and bytes.
pub struct Places<'p>(std::slice::Iter<'p, (u64, usize)>);

impl Places<'_> {
    fn next<T>(&mut self) -> Address<T> {
        let (address, bytes) = self.0.next().copied().unwrap_or_default();
        Address { address, len: bytes / size_of::<T>().max(1), _elements: PhantomData }
    }
}

/// Enqueues `section` over `args`, or records it; see [`EnqueueRaw::raw`](crate::EnqueueRaw::raw), whose contract is the
/// caller's.
pub(crate) fn enqueue<B: HasRaw, A: RawArgs<B>, K: Send + 'static>(
    mut route: Route<'_, B>,
    args: A,
    section: impl FnOnce(&B::RawQueue, A::Addresses) -> Result<K, SectionError>,
) -> Result<()> {
    if let Some(guard) = route.window {
        guard.record(|recorder| recorder.refuse_if_doomed("raw"))?;
    }
    let shared: State<B>;
    let mut uses = UsesOf::new();
    let gathered = route.gather("raw", &mut uses, |into| args.gather(into));
    if !uses.iter().any(|used| used.alloc.is_token) {
        let device = &route.core.device;
        shared = device.sections.get_or_init(|| State::of(device)).clone();
        uses.push(shared.used());
    }
    // Until all is enqueued or recorded, the addresses are good.
    let held = gathered.map_or_else(|| Held::new(&route, &uses), |error| Err(*error));
    let captured = held.and_then(|held| {
        let runs = if route.window.is_some() { Runs::Replayed } else { Runs::Once };
        let addresses = A::addresses(&mut Places(held.places.iter()));
        let captured = route.core.device.backend.capture(runs, |queue| section(queue, addresses))?;
        Ok((captured, held))
    });
    match captured {
        Ok((section, held)) => {
            let job = Job(Work::Raw { section: Arc::new(section) });
            let outcome = route.perform("raw", &uses, job, Kind::Plain, None);
            drop(held);
            outcome.map(drop)
        }
        // Whatever job it is that does not run: what it was to write is not written.
        Err(error) => {
            let job = Job(Work::Copy);
            route.perform("raw", &uses, job, Kind::Plain, Some(Box::new(error))).map(drop)
        }
    }
}

/// The arguments, held where they are.
struct Held<B: Backend> {
    places: SmallVec<[(u64, usize); 8]>,
    _pins: SmallVec<[RawBuffer<B>; 8]>,
}

impl<B: Backend> Held<B> {
    fn new(route: &Route<'_, B>, uses: &[UseOf<'_, B>]) -> Result<Self> {
        let mut held = Held { places: SmallVec::new(), _pins: SmallVec::new() };
        for used in uses.iter().filter(|used| !used.alloc.is_token) {
            let born = route.window.filter(|guard| used.is_born_in(guard));
            let address = match born {
                Some(guard) => place(route, guard, used)?,
                None => {
                    let pin = RawBuffer::hold(used.alloc, used.range())?;
                    let address = pin.address();
                    held._pins.push(pin);
                    address
                }
            };
            held.places.push((address, used.end - used.start));
        }
        Ok(held)
    }
}

impl<B: Backend> UseOf<'_, B> {
    fn is_born_in(&self, guard: &WindowGuard<B>) -> bool {
        matches!(self.alloc.state.lock().home, Home::Recording(window) if window == guard.window.id)
    }
}

/// Gives a buffer that the window bore its memory now; returns the address.
fn place<B: Backend>(route: &Route<'_, B>, guard: &WindowGuard<B>, used: &UseOf<'_, B>) -> Result<u64> {
    let known =
        |recorder: &mut Recorder<B>| Ok(recorder.early(used.alloc).map(|early| early.address(used.start)));
    if let Some(address) = guard.record(known)? {
        return address;
    }
    let core = &route.core;
    // Under no lock: it may wait for the device.
    let reserved = reserve(&core.device, core.slot, used.alloc.bytes, core.mode)?;
    let early = Early::new(&core.device, reserved);
    let address = early.address(used.start);
    guard.record(|recorder| {
        recorder.place_early(used.alloc, early);
        Ok(())
    })?;
    address
}

macro_rules! arg {
    ($address:ident, $access:expr, $make:expr, $(($($life:lifetime)*) $ty:ty;)*) => { $(
        #[diagnostic::do_not_recommend]
        impl<$($life,)* T: Pod, B: Backend> sealed::RawArg<B> for $ty {
            fn gather<'u>(&'u self, into: &mut Gather<'_, 'u, B>) {
                into.buffer(self.as_slice(), $access);
            }
        }
        #[diagnostic::do_not_recommend]
        impl<$($life,)* T: Pod, B: Backend> RawArg<B> for $ty {
            type Address = $address<T>;
            fn address(of: &mut Places<'_>) -> $address<T> {
                $make(of.next())
            }
        }
    )* };
}

arg! { Address, Access::Read, std::convert::identity,
    () &Buffer<T, B>;
    () &&Buffer<T, B>;
    ('s) Slice<'s, T, B>;
    ('s) &Slice<'s, T, B>;
    ('s) &SliceMut<'s, T, B>;
}
arg! { AddressMut, Access::ReadWrite, AddressMut,
    () &mut Buffer<T, B>;
    () &mut &mut Buffer<T, B>;
    ('s) SliceMut<'s, T, B>;
    ('s) &mut SliceMut<'s, T, B>;
}

#[diagnostic::do_not_recommend]
impl<B: Backend, D: Target<B>> sealed::RawArg<B> for Overwrite<D> {
    fn gather<'u>(&'u self, into: &mut Gather<'_, 'u, B>) {
        into.buffer(self.0.target(), Access::Write);
    }
}
#[diagnostic::do_not_recommend]
impl<B: Backend, D: Target<B>> RawArg<B> for Overwrite<D> {
    type Address = AddressMut<D::Element>;

    fn address(of: &mut Places<'_>) -> Self::Address {
        AddressMut(of.next())
    }
}

#[diagnostic::do_not_recommend]
impl<B: Backend> sealed::RawArg<B> for &State<B> {
    fn gather<'u>(&'u self, into: &mut Gather<'_, 'u, B>) {
        into.state(self);
    }
}
#[diagnostic::do_not_recommend]
impl<B: Backend> RawArg<B> for &State<B> {
    type Address = ();

    fn address(_of: &mut Places<'_>) {}
}

macro_rules! tuples {
    ($($arg:ident)*) => {
        #[diagnostic::do_not_recommend]
        impl<B: Backend, $($arg: RawArg<B>),*> sealed::RawArgs<B> for ($($arg,)*) {
            #[allow(non_snake_case, reason = "one name serves the type and its value")]
            fn gather<'u>(&'u self, _into: &mut Gather<'_, 'u, B>) {
                let ($($arg,)*) = self;
                $($arg.gather(_into);)*
            }
        }
        impl<B: Backend, $($arg: RawArg<B>),*> RawArgs<B> for ($($arg,)*) {
            type Addresses = ($($arg::Address,)*);
            #[allow(clippy::unused_unit, reason = "the addresses of no arguments")]
            fn addresses(_of: &mut Places<'_>) -> Self::Addresses {
                ($($arg::address(_of),)*)
            }
        }
    };
}

macro_rules! up_to_12 {
    ([$($taken:ident)*] []) => { tuples!($($taken)*); };
    ([$($taken:ident)*] [$next:ident $($rest:ident)*]) => {
        tuples!($($taken)*);
        up_to_12!([$($taken)* $next] [$($rest)*]);
    };
}

up_to_12!([] [A0 A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11]);

assert_impl_all!(Address<f32>: Send, Sync, Copy);
assert_impl_all!(AddressMut<f32>: Send, Sync);
