//! What a launch is given: a tuple that fits the kernel's signature, checked at compile time.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use smallvec::SmallVec;

use crate::access::Access;
use crate::backend::Backend;
use crate::buffer::{Buffer, Slice, SliceMut};
use crate::error::Error;
use crate::graph::flow::Use;
use crate::kernel::signature::{In, InOut, Len, Out, Signature, Uniform};
use crate::kernel::tables::Gathered;
use crate::memory::allocation::Allocation;
use crate::state::State;
use crate::submit::Problem;

/// The arguments of a launch: a tuple with one [`Arg`] for each parameter of the signature `S`.
#[diagnostic::on_unimplemented(
    message = "these arguments do not fit a kernel of signature `{S}`",
    label = "the arguments are `{Self}`",
    note = "pass one tuple with as many arguments as the signature has parameters; a single one is `(&buffer,)`"
)]
pub trait Args<S: Signature, B: Backend>: sealed::Args<S, B> {}

/// One argument of a launch, for a parameter of kind `P`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no argument for a kernel parameter `{P}` on `{B}`",
    label = "this argument does not fit the parameter `{P}`",
    note = "`In<T>` takes `&buffer` or a `Slice`; `Out<T>` and `InOut<T>` take `&mut buffer` or a `SliceMut`; `Uniform<T>` takes host memory: `&[T]`, `&[T; N]` or `&Vec<T>`; a scalar is passed by value",
    note = "element types must be equal (`buffer.cast()` changes one), and the buffer must live on the kernel's backend",
    note = "for an `In<T>`, host memory goes to a buffer by `write` first; and if you hold a `&mut buffer`, pass on `&*it` for an input, `&mut *it` for an output"
)]
pub trait Arg<P, B: Backend>: sealed::Arg<P, B> {}

/// What an operation uses of one allocation, before it is resolved. Borrowed from the arguments: to count references, of each
/// argument of each launch, costs as much as all else that is done for it.
pub struct UseOf<'u, B: Backend> {
    pub(crate) alloc: &'u Arc<Allocation<B>>,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) access: Access,
}

/// What one operation uses: room for as many parameters as a launch can have, and a few tokens.
pub(crate) type UsesOf<'u, B> = SmallVec<[UseOf<'u, B>; 36]>;

impl<B: Backend> UseOf<'_, B> {
    /// The bytes, from the start of the allocation.
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    /// In a recording, of the allocation that has this number there.
    #[inline]
    pub(crate) fn at(&self, alloc: u32) -> Use {
        Use { alloc, start: self.start as u64, end: self.end as u64, access: self.access }
    }
}

impl<B: Backend> Clone for UseOf<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for UseOf<'_, B> {}

/// A use that is named before the operation is called, and outlives what named it.
pub struct Named<B: Backend> {
    alloc: Arc<Allocation<B>>,
    start: usize,
    end: usize,
    access: Access,
}

impl<B: Backend> Named<B> {
    pub(crate) fn new<T: Pod>(slice: Slice<'_, T, B>, access: Access) -> Self {
        let (alloc, start, end) = slice.parts();
        Named { alloc: alloc.clone(), start, end, access }
    }

    pub(crate) fn used(&self) -> UseOf<'_, B> {
        let Named { alloc, start, end, access } = self;
        UseOf { alloc, start: *start, end: *end, access: *access }
    }
}

/// Collects the arguments of one operation, and the first thing that is wrong with them.
pub struct Gather<'g, 'u, B: Backend> {
    pub(crate) device: u32,
    pub(crate) operation: &'static str,
    pub(crate) uses: &'g mut UsesOf<'u, B>,
    pub(crate) scalars: &'g mut Vec<u8>,
    pub(crate) tables: &'g mut Gathered,
    pub(crate) error: Problem,
}

impl<'u, B: Backend> Gather<'_, 'u, B> {
    /// A buffer of another device is reported and left out, so that what is left can still be tainted.
    #[inline]
    pub(crate) fn buffer<T: Pod>(&mut self, slice: Slice<'u, T, B>, access: Access) {
        let (alloc, start, end) = slice.parts();
        self.object(UseOf { alloc, start, end, access }, "buffer");
    }

    /// One that was named before, to be gathered after every argument.
    pub(crate) fn named(&mut self, named: &'u Named<B>) {
        self.object(named.used(), "buffer");
    }

    #[inline]
    fn object(&mut self, used: UseOf<'u, B>, object: &'static str) {
        let found = used.alloc.device_id();
        if found == self.device { self.uses.push(used) } else { self.refuse(object, found) }
    }

    #[cold]
    fn refuse(&mut self, object: &'static str, found: u32) {
        let (operation, expected) = (self.operation, self.device);
        let error = || Box::new(Error::WrongDevice { operation, object, expected, found });
        self.error.get_or_insert_with(error);
    }

    /// A token. After every buffer, since buffers are told by their places.
    pub(crate) fn state(&mut self, state: &'u State<B>) {
        self.object(state.used(), "state");
    }

    /// A table of the host's, whose place is after what was gathered so far.
    pub(crate) fn table<T: Pod>(&mut self, table: &[T]) {
        const { assert!(size_of::<T>() > 0, "an element type without bytes cannot live in device memory") };
        const {
            assert!(align_of::<T>() <= 256, "an element type aligned to more than 256 bytes is not supported")
        };
        self.tables.push(self.uses.len(), bytemuck::cast_slice(table));
    }

    #[inline]
    pub(crate) fn scalar<T: Pod>(&mut self, value: T) {
        self.scalars.extend_from_slice(bytemuck::bytes_of(&value));
    }
}

pub(crate) mod sealed {
    use super::*;

    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be made the arguments of a launch",
        label = "only tuples are"
    )]
    pub trait Args<S, B: Backend> {
        fn gather<'u>(&'u self, into: &mut Gather<'_, 'u, B>);
    }

    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be made an argument of a launch",
        label = "only the buffers and slices of this crate are, and plain data",
        note = "a type that owns a `Buffer` lends it as a `Slice` or a `SliceMut` instead"
    )]
    pub trait Arg<P, B: Backend> {
        fn gather<'u>(&'u self, into: &mut Gather<'_, 'u, B>);
    }
}

macro_rules! arg {
    ($param:ident, $access:expr, $(($($life:lifetime)*) $ty:ty;)*) => { $(
        #[diagnostic::do_not_recommend]
        impl<$($life,)* T: Pod, B: Backend> sealed::Arg<$param<T>, B> for $ty {
            #[inline]
            fn gather<'u>(&'u self, into: &mut Gather<'_, 'u, B>) {
                into.buffer(self.as_slice(), $access);
            }
        }
        impl<$($life,)* T: Pod, B: Backend> Arg<$param<T>, B> for $ty {}
    )* };
}

// Direct impls, one a type: a blanket one over "everything that is a slice" would hide the words above.
arg! { In, Access::Read,
    () &Buffer<T, B>;
    () &&Buffer<T, B>;
    ('s) Slice<'s, T, B>;
    ('s) &Slice<'s, T, B>;
    ('s) &SliceMut<'s, T, B>;
}
arg! { Out, Access::Write,
    () &mut Buffer<T, B>;
    () &mut &mut Buffer<T, B>;
    ('s) SliceMut<'s, T, B>;
    ('s) &mut SliceMut<'s, T, B>;
}
arg! { InOut, Access::ReadWrite,
    () &mut Buffer<T, B>;
    () &mut &mut Buffer<T, B>;
    ('s) SliceMut<'s, T, B>;
    ('s) &mut SliceMut<'s, T, B>;
}

macro_rules! table {
    ($(($($size:tt)*) $ty:ty;)*) => { $(
        #[diagnostic::do_not_recommend]
        impl<T: Pod, B: Backend, $($size)*> sealed::Arg<Uniform<T>, B> for $ty {
            fn gather<'u>(&'u self, into: &mut Gather<'_, 'u, B>) {
                into.table(&self[..]);
            }
        }
    )* };
}

table! {
    () &[T];
    () &Vec<T>;
    (const N: usize) &[T; N];
}
// Out of the macro, which the compiler would else show to whoever passes a slice as an `In`.
impl<T: Pod, B: Backend> Arg<Uniform<T>, B> for &[T] {}
impl<T: Pod, B: Backend> Arg<Uniform<T>, B> for &Vec<T> {}
impl<T: Pod, B: Backend, const N: usize> Arg<Uniform<T>, B> for &[T; N] {}

#[diagnostic::do_not_recommend]
impl<T: Pod, B: Backend> sealed::Arg<T, B> for T {
    #[inline]
    fn gather<'u>(&'u self, into: &mut Gather<'_, 'u, B>) {
        into.scalar(*self);
    }
}
#[diagnostic::do_not_recommend]
impl<T: Pod, B: Backend> Arg<T, B> for T {}

#[diagnostic::do_not_recommend]
impl<const I: usize, B: Backend> sealed::Arg<Len<I>, B> for Len<I> {
    #[inline]
    fn gather<'u>(&'u self, into: &mut Gather<'_, 'u, B>) {
        // Its place; `supply` fills it, once every argument is there.
        into.scalar(0u64);
    }
}
#[diagnostic::do_not_recommend]
impl<const I: usize, B: Backend> Arg<Len<I>, B> for Len<I> {}

macro_rules! tuples {
    ($(($param:ident $arg:ident))*) => {
        impl<B: Backend, $($param, $arg: Arg<$param, B>),*> sealed::Args<($($param,)*), B> for ($($arg,)*) {
            #[allow(non_snake_case, reason = "one name serves the type and its value")]
            // Into the launch, whose code is of these arguments as well.
            #[inline(always)]
            fn gather<'u>(&'u self, _into: &mut Gather<'_, 'u, B>) {
                let ($($arg,)*) = self;
                $($arg.gather(_into);)*
            }
        }
        impl<B: Backend, $($param: crate::kernel::Param, $arg: Arg<$param, B>),*>
            Args<($($param,)*), B> for ($($arg,)*) {}
    };
}

/// Calls `tuples` once for every length from 0 to 32.
macro_rules! pairs_up_to_32 {
    () => { pairs_up_to_32!(@step [] [
        (P0 A0) (P1 A1) (P2 A2) (P3 A3) (P4 A4) (P5 A5) (P6 A6) (P7 A7) (P8 A8) (P9 A9) (P10 A10) (P11 A11)
        (P12 A12) (P13 A13) (P14 A14) (P15 A15) (P16 A16) (P17 A17) (P18 A18) (P19 A19) (P20 A20) (P21 A21)
        (P22 A22) (P23 A23) (P24 A24) (P25 A25) (P26 A26) (P27 A27) (P28 A28) (P29 A29) (P30 A30) (P31 A31)
    ]); };
    (@step [$($taken:tt)*] []) => { tuples!($($taken)*); };
    (@step [$($taken:tt)*] [$next:tt $($rest:tt)*]) => {
        tuples!($($taken)*);
        pairs_up_to_32!(@step [$($taken)* $next] [$($rest)*]);
    };
}

pairs_up_to_32!();
