//! What a launch is given: a tuple that fits the kernel's signature, checked at compile time.

#![forbid(unsafe_code)]

use std::hint::cold_path;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;

use crate::access::Access;
use crate::backend::Backend;
use crate::backend::command::Scalars;
use crate::buffer::{Buffer, Slice, SliceMut};
use crate::error::Error;
use crate::kernel::signature::{In, InOut, Len, Out, ParamKind, Role, Signature, Uniform};
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

/// What a launch uses of one allocation, before it is resolved.
pub struct UseOf<B: Backend> {
    pub(crate) alloc: Arc<Allocation<B>>,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) access: Access,
}

impl<B: Backend> UseOf<B> {
    /// The bytes, from the start of the allocation.
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// Collects the arguments of one operation, and the first thing that is wrong with them.
pub struct Gather<'g, B: Backend> {
    pub(crate) device: u32,
    pub(crate) operation: &'static str,
    pub(crate) uses: &'g mut Vec<UseOf<B>>,
    pub(crate) scalars: &'g mut Scalars,
    pub(crate) tables: &'g mut Gathered,
    pub(crate) error: Problem,
}

impl<B: Backend> Gather<'_, B> {
    /// A buffer of another device is reported and left out, so that what is left can still be tainted.
    #[inline]
    pub(crate) fn buffer<T: Pod>(&mut self, slice: Slice<'_, T, B>, access: Access) {
        let (alloc, start, end) = slice.parts();
        let found = alloc.device_id();
        self.used(UseOf { alloc: alloc.clone(), start, end, access }, found);
    }

    #[inline]
    pub(crate) fn used(&mut self, used: UseOf<B>, found: u32) {
        self.object(used, found, "buffer");
    }

    #[inline]
    fn object(&mut self, used: UseOf<B>, found: u32, object: &'static str) {
        if found == self.device {
            self.uses.push(used);
            return;
        }
        cold_path();
        let (operation, expected) = (self.operation, self.device);
        let error = || Box::new(Error::WrongDevice { operation, object, expected, found });
        self.error.get_or_insert_with(error);
    }

    /// A token. After every buffer, since buffers are told by their places.
    pub(crate) fn state(&mut self, state: &State<B>) {
        let (used, found) = state.used();
        self.object(used, found, "state");
    }

    /// The counts of an indirect grid, which no argument may come after.
    pub(crate) fn counts(&mut self, counts: UseOf<B>) {
        let found = counts.alloc.device_id();
        self.used(counts, found);
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
        fn gather(self, into: &mut Gather<'_, B>);
    }

    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be made an argument of a launch",
        label = "only the buffers and slices of this crate are, and plain data",
        note = "a type that owns a `Buffer` lends it as a `Slice` or a `SliceMut` instead"
    )]
    pub trait Arg<P, B: Backend> {
        fn gather(self, into: &mut Gather<'_, B>);
    }
}

macro_rules! arg {
    ($param:ident, $access:expr, $(($($life:lifetime)*) $ty:ty, $this:ident => $slice:expr;)*) => { $(
        #[diagnostic::do_not_recommend]
        impl<$($life,)* T: Pod, B: Backend> sealed::Arg<$param<T>, B> for $ty {
            fn gather(self, into: &mut Gather<'_, B>) {
                let $this = self;
                into.buffer($slice, $access);
            }
        }
        impl<$($life,)* T: Pod, B: Backend> Arg<$param<T>, B> for $ty {}
    )* };
}

// Direct impls, one a type: a blanket one over "everything that is a slice" would hide the words above.
arg! { In, Access::Read,
    () &Buffer<T, B>, buffer => buffer.as_slice();
    () &&Buffer<T, B>, buffer => buffer.as_slice();
    ('s) Slice<'s, T, B>, slice => slice;
    ('s) &Slice<'s, T, B>, slice => *slice;
    ('s) &SliceMut<'s, T, B>, slice => slice.as_slice();
}
arg! { Out, Access::Write,
    () &mut Buffer<T, B>, buffer => buffer.as_slice();
    () &mut &mut Buffer<T, B>, buffer => buffer.as_slice();
    ('s) SliceMut<'s, T, B>, slice => slice.as_slice();
    ('s) &mut SliceMut<'s, T, B>, slice => slice.as_slice();
}
arg! { InOut, Access::ReadWrite,
    () &mut Buffer<T, B>, buffer => buffer.as_slice();
    () &mut &mut Buffer<T, B>, buffer => buffer.as_slice();
    ('s) SliceMut<'s, T, B>, slice => slice.as_slice();
    ('s) &mut SliceMut<'s, T, B>, slice => slice.as_slice();
}

macro_rules! table {
    ($(($($size:tt)*) $ty:ty;)*) => { $(
        #[diagnostic::do_not_recommend]
        impl<T: Pod, B: Backend, $($size)*> sealed::Arg<Uniform<T>, B> for $ty {
            fn gather(self, into: &mut Gather<'_, B>) {
                into.table(self);
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
    fn gather(self, into: &mut Gather<'_, B>) {
        into.scalar(self);
    }
}
#[diagnostic::do_not_recommend]
impl<T: Pod, B: Backend> Arg<T, B> for T {}

#[diagnostic::do_not_recommend]
impl<const I: usize, B: Backend> sealed::Arg<Len<I>, B> for Len<I> {
    fn gather(self, into: &mut Gather<'_, B>) {
        // Its place; `lengths` fills it, once every argument is there.
        into.scalar(0u64);
    }
}
#[diagnostic::do_not_recommend]
impl<const I: usize, B: Backend> Arg<Len<I>, B> for Len<I> {}

/// Writes the element counts that [`Len`] parameters ask for into their places among the gathered scalars.
pub(crate) fn lengths<B: Backend>(
    params: &[ParamKind],
    uses: &[UseOf<B>],
    tables: &Gathered,
    scalars: &mut [u8],
) {
    let mut at = 0;
    for param in params {
        match param {
            ParamKind::Buffer(_) => {}
            ParamKind::Scalar(bytes) => at += bytes,
            ParamKind::Len(of) => {
                let len = elements(params, *of, uses, tables) as u64;
                if let Some(place) = scalars.get_mut(at..at + size_of::<u64>()) {
                    place.copy_from_slice(&len.to_ne_bytes());
                }
                at += size_of::<u64>();
            }
        }
    }
}

/// How many elements the argument for parameter `of` has.
pub(crate) fn elements<B: Backend>(
    params: &[ParamKind],
    of: usize,
    uses: &[UseOf<B>],
    tables: &Gathered,
) -> usize {
    let Some(ParamKind::Buffer(param)) = params.get(of) else { return 0 };
    let buffers = params.iter().take(of).filter_map(ParamKind::buffer);
    let place = buffers.clone().count();
    let bytes = if param.role == Role::Table {
        tables.iter().find(|(at, _)| *at == place).map_or(0, |(_, table)| table.len())
    } else {
        // Tables are not among the uses yet.
        let before = buffers.filter(|param| param.role != Role::Table).count();
        uses.get(before).map_or(0, |used| used.end - used.start)
    };
    bytes / param.element
}

macro_rules! tuples {
    ($(($param:ident $arg:ident))*) => {
        impl<B: Backend, $($param, $arg: Arg<$param, B>),*> sealed::Args<($($param,)*), B> for ($($arg,)*) {
            #[allow(non_snake_case, reason = "one name serves the type and its value")]
            fn gather(self, _into: &mut Gather<'_, B>) {
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
