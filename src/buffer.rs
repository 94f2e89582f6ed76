//! Typed device memory: buffers, and ranges of them.

#![forbid(unsafe_code)]

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bytemuck::Pod;
use static_assertions::{assert_impl_all, assert_not_impl_any};

use crate::backend::Backend;
use crate::backend::host::Host;
use crate::error::{Error, Result};
use crate::kernel::Element;
use crate::memory::allocation::Allocation;
use crate::memory::hold::Hold;
use crate::refused::Refused;

/// `len` elements of `T` in device memory; made by [`Enqueue::alloc`](crate::Enqueue::alloc).
///
/// A buffer owns its elements: it is not `Clone`, and every byte of the device belongs to at most one buffer, so that
/// `&mut` means exclusive use, also across streams. Dropping it at any time is safe: work that was enqueued on it, or
/// a graph that recorded it, keeps what it needs.
pub struct Buffer<T: Element, B: Backend = Host> {
    alloc: Hold<B>,
    /// The first byte in the allocation.
    start: usize,
    len: usize,
    _element: PhantomData<T>,
}

/// A shared range of a [`Buffer`].
pub struct Slice<'b, T: Element, B: Backend = Host> {
    alloc: &'b Arc<Allocation<B>>,
    start: usize,
    len: usize,
    _element: PhantomData<&'b [T]>,
}

/// An exclusive range of a [`Buffer`].
pub struct SliceMut<'b, T: Element, B: Backend = Host> {
    alloc: &'b Arc<Allocation<B>>,
    start: usize,
    len: usize,
    _element: PhantomData<&'b mut [T]>,
}

impl<T: Pod, B: Backend> Buffer<T, B> {
    pub(crate) fn new(alloc: Arc<Allocation<B>>, len: usize) -> Self {
        Buffer { alloc: Hold::new(alloc), start: 0, len, _element: PhantomData }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of it, shared.
    pub fn as_slice(&self) -> Slice<'_, T, B> {
        Slice { alloc: &self.alloc, start: self.start, len: self.len, _element: PhantomData }
    }

    /// All of it, exclusive.
    pub fn as_slice_mut(&mut self) -> SliceMut<'_, T, B> {
        SliceMut { alloc: &self.alloc, start: self.start, len: self.len, _element: PhantomData }
    }

    /// The elements of `range`, shared.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] with the range and the length.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'_, T, B>> {
        self.as_slice().slice(range)
    }

    /// The elements of `range`, exclusive.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] with the range and the length.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<SliceMut<'_, T, B>> {
        self.as_slice_mut().into_range(range)
    }

    /// The first `at` elements and the rest, both exclusive: two outputs of one launch.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if there are fewer than `at`.
    pub fn split_at_mut(&mut self, at: usize) -> Result<(SliceMut<'_, T, B>, SliceMut<'_, T, B>)> {
        self.as_slice_mut().split_at(at)
    }

    /// Cuts the buffer in two that can be stored apart: keeps the first `at` elements and returns the rest.
    ///
    /// Both are parts of one allocation, which lives until both are dropped. Uses of the two parts never wait for
    /// each other.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if there are fewer than `at`; the buffer is whole.
    pub fn split_off(&mut self, at: usize) -> Result<Self> {
        let rest = self.as_slice().slice(at..)?;
        let tail =
            Buffer { alloc: self.alloc.clone(), start: rest.start, len: rest.len, _element: PhantomData };
        self.len = at;
        Ok(tail)
    }

    /// The allocation, if nobody else refers to it.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(crate) fn sole(&mut self) -> Option<&mut Allocation<B>> {
        self.alloc.sole()
    }

    /// The same bytes as elements of another type.
    ///
    /// # Errors
    /// [`Error::CastSize`] if the bytes are not a whole number of new elements, [`Error::CastAlignment`] if they start
    /// at a byte where none may start. [`Refused`] holds the buffer.
    pub fn cast<U: Element>(self) -> Result<Buffer<U, B>, Refused<Self>> {
        match cast_len::<T, U>(self.start, self.len) {
            Ok(len) => Ok(Buffer { alloc: self.alloc, start: self.start, len, _element: PhantomData }),
            Err(error) => Err(Refused::new(self, error)),
        }
    }
}

impl<'b, T: Pod, B: Backend> Slice<'b, T, B> {
    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements of `range`, counted from the start of this slice.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] with the range and the length.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'b, T, B>> {
        let (start, end) = bounds(range, self.len)?;
        Ok(Slice { start: self.start + start * size_of::<T>(), len: end - start, ..*self })
    }

    /// The same bytes as elements of another type.
    ///
    /// # Errors
    /// [`Error::CastSize`] and [`Error::CastAlignment`], as for [`Buffer::cast`].
    pub fn cast<U: Element>(&self) -> Result<Slice<'b, U, B>> {
        let len = cast_len::<T, U>(self.start, self.len)?;
        Ok(Slice { alloc: self.alloc, start: self.start, len, _element: PhantomData })
    }

    /// The allocation and the bytes in it.
    pub(crate) fn parts(&self) -> (&'b Arc<Allocation<B>>, usize, usize) {
        (self.alloc, self.start, self.start + self.len * size_of::<T>())
    }
}

impl<'b, T: Pod, B: Backend> SliceMut<'b, T, B> {
    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The same elements, shared, for as long as `self` is not used otherwise.
    pub fn as_slice(&self) -> Slice<'_, T, B> {
        Slice { alloc: self.alloc, start: self.start, len: self.len, _element: PhantomData }
    }

    /// The same elements, for a shorter time: what `&mut *it` is to a reference.
    pub fn reborrow(&mut self) -> SliceMut<'_, T, B> {
        SliceMut { alloc: self.alloc, start: self.start, len: self.len, _element: PhantomData }
    }

    /// The elements of `range`, counted from the start of this slice.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] with the range and the length.
    pub fn into_range(self, range: impl RangeBounds<usize>) -> Result<SliceMut<'b, T, B>> {
        let (start, end) = bounds(range, self.len)?;
        Ok(SliceMut { start: self.start + start * size_of::<T>(), len: end - start, ..self })
    }

    /// The first `at` elements and the rest.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if there are fewer than `at`.
    pub fn split_at(self, at: usize) -> Result<(SliceMut<'b, T, B>, SliceMut<'b, T, B>)> {
        let (_, end) = bounds(at.., self.len)?;
        let (alloc, start) = (self.alloc, self.start);
        let right =
            SliceMut { alloc, start: start + at * size_of::<T>(), len: end - at, _element: PhantomData };
        Ok((SliceMut { alloc, start, len: at, _element: PhantomData }, right))
    }

    /// The same bytes as elements of another type.
    ///
    /// # Errors
    /// [`Error::CastSize`] and [`Error::CastAlignment`], as for [`Buffer::cast`].
    pub fn cast<U: Element>(self) -> Result<SliceMut<'b, U, B>> {
        let len = cast_len::<T, U>(self.start, self.len)?;
        Ok(SliceMut { alloc: self.alloc, start: self.start, len, _element: PhantomData })
    }
}

impl<T: Pod, B: Backend> Clone for Slice<'_, T, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Pod, B: Backend> Copy for Slice<'_, T, B> {}

/// Something with elements that can be read: a buffer or a slice, by reference or by value.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a source of elements on `{B}`",
    label = "no elements of `{B}` can be read here",
    note = "pass `&buffer`, a `Slice`, or `&slice_mut`; host memory is brought to the device by `write`"
)]
pub trait Source<B: Backend>: sealed::Source<B> {}

/// Something with elements that can be overwritten: an exclusive buffer or slice.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a destination for elements on `{B}`",
    label = "no elements of `{B}` can be written here",
    note = "pass `&mut buffer` or a `SliceMut`; if you hold a `&mut` already, pass it on as `&mut *it`"
)]
pub trait Target<B: Backend>: sealed::Target<B> {}

pub(crate) mod sealed {
    use super::*;

    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be made a source of elements",
        label = "only the buffers and slices of this crate are",
        note = "a type that owns a `Buffer` lends it as a `Slice` instead"
    )]
    pub trait Source<B: Backend> {
        type Element: Pod;
        fn source(&self) -> Slice<'_, Self::Element, B>;
    }

    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be made a destination for elements",
        label = "only the buffers and slices of this crate are",
        note = "a type that owns a `Buffer` lends it as a `SliceMut` instead"
    )]
    pub trait Target<B: Backend> {
        type Element: Pod;
        fn target(&self) -> Slice<'_, Self::Element, B>;
    }
}

macro_rules! ends {
    ($end:ident, $method:ident, $(($($life:lifetime)*) $ty:ty;)*) => { $(
        #[diagnostic::do_not_recommend]
        impl<$($life,)* T: Pod, B: Backend> sealed::$end<B> for $ty {
            type Element = T;
            fn $method(&self) -> Slice<'_, T, B> {
                self.as_slice()
            }
        }
        #[diagnostic::do_not_recommend]
        impl<$($life,)* T: Pod, B: Backend> $end<B> for $ty {}
    )* };
}

impl<T: Pod, B: Backend> Slice<'_, T, B> {
    /// So that one macro serves every kind of source.
    pub(crate) fn as_slice(&self) -> Slice<'_, T, B> {
        *self
    }
}

ends! { Source, source,
    () &Buffer<T, B>;
    () &&Buffer<T, B>;
    ('s) Slice<'s, T, B>;
    ('s) &Slice<'s, T, B>;
    ('s) &SliceMut<'s, T, B>;
}
ends! { Target, target,
    () &mut Buffer<T, B>;
    () &mut &mut Buffer<T, B>;
    ('s) SliceMut<'s, T, B>;
    ('s) &mut SliceMut<'s, T, B>;
}

macro_rules! debug {
    ($($name:literal $ty:ty;)*) => { $(
        impl<T: Pod, B: Backend> std::fmt::Debug for $ty {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let element = std::any::type_name::<T>();
                f.debug_struct($name).field("element", &element).field("len", &self.len).finish_non_exhaustive()
            }
        }
    )* };
}

debug! { "Buffer" Buffer<T, B>; "Slice" Slice<'_, T, B>; "SliceMut" SliceMut<'_, T, B>; }

/// The bounds of `range` among `len` elements.
fn bounds(range: impl RangeBounds<usize>, len: usize) -> Result<(usize, usize)> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len.max(start),
    };
    if start > end || end > len {
        return Err(Error::OutOfRange { start, end, len });
    }
    Ok((start, end))
}

/// How many `U` the bytes of `len` elements of `T` make.
fn cast_len<T, U>(start: usize, len: usize) -> Result<usize> {
    const { assert!(size_of::<U>() > 0, "an element type without bytes cannot live in device memory") };
    const { assert!(align_of::<U>() <= 256, "an element type aligned to more than 256 bytes is not supported") };
    let bytes = len * size_of::<T>();
    if !bytes.is_multiple_of(size_of::<U>()) {
        return Err(Error::CastSize { bytes, element: size_of::<U>() });
    }
    // Allocations start at multiples of what any element type needs, so that the offset alone decides.
    if !start.is_multiple_of(align_of::<U>()) {
        return Err(Error::CastAlignment { start, align: align_of::<U>() });
    }
    Ok(bytes / size_of::<U>())
}

assert_impl_all!(Buffer<f32>: Send, Sync);
assert_not_impl_any!(Buffer<f32>: Clone, Copy);
assert_impl_all!(Slice<'static, f32>: Send, Sync, Copy);
assert_not_impl_any!(SliceMut<'static, f32>: Clone, Copy);
