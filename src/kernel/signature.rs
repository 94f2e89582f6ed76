//! What a kernel takes: a tuple of parameter kinds.

#![forbid(unsafe_code)]

use std::marker::PhantomData;

use bytemuck::Pod;

use crate::backend::host::HostArgs;
use crate::kernel::check::Facts;
use crate::kernel::lengths::{Length, lengths};
use crate::kernel::tables;

/// A buffer that the kernel reads.
pub struct In<T>(PhantomData<fn() -> T>);

/// A buffer that the kernel overwrites: a launch that runs writes **every** element of its slice, and reads none.
///
/// The edges of a graph, the planning of its arena and the clearing of taint rest on it. A kernel that breaks the
/// promise shows stale bytes of this process, never undefined behaviour; one that cannot keep it takes [`InOut`].
pub struct Out<T>(PhantomData<fn() -> T>);

/// A buffer that the kernel reads and writes, all of it or in part.
pub struct InOut<T>(PhantomData<fn() -> T>);

/// A small read-only table that a launch brings along from the host, the same for every thread of the grid: shapes,
/// strides, coefficients.
///
/// The argument is host memory: `&[T]`, `&[T; N]` or `&Vec<T>`, of at most [`MAX_BYTES`](Uniform::MAX_BYTES). It is copied
/// before the launch returns. A recorded launch has the table of the recording on every replay.
///
/// Tables with the same contents are uploaded once and kept for the launches to come: those of up to 4 KiB, the least
/// recently used leaving first, and every one from [`prepare`](crate::Stream::prepare) to the end of the window and for
/// as long as a graph uses it. What a recording does not find is uploaded at its end, all at once, and never by a replay: a
/// graph whose upload fails when it runs reports that on every replay, and is to be recorded again.
///
/// ```
/// use dacapo::prelude::*;
///
/// # fn main() -> dacapo::Result<()> {
/// # let device = Device::host()?;
/// # let mut stream = device.stream()?;
/// let program = Program::<(In<f32>, Out<f32>, Uniform<u32>)>::new("gather")
///     .host(|(from, to, indices), _| to.iter_mut().zip(indices).for_each(|(to, at)| *to = from[*at as usize]));
/// let gather = program.load(&device)?;
/// let mut from = stream.alloc_scratch::<f32>(3)?;
/// let mut to = stream.alloc_scratch::<f32>(3)?;
/// stream.write(&mut from, &[1.0, 2.0, 3.0])?;
/// stream.launch(&gather, Grid::covering(3), (&from, &mut to, &[2, 1, 0]))?;
/// assert_eq!(stream.read(&to)?, [3.0, 2.0, 1.0]);
/// # Ok(())
/// # }
/// ```
pub struct Uniform<T>(PhantomData<fn() -> T>);

impl<T> Uniform<T> {
    /// The most bytes that one table may have: what every device can bind at once.
    pub const MAX_BYTES: usize = tables::MAX_BYTES;
}

/// How many elements argument `I` of the launch has, counted from 0: supplied by the library, so that a kernel can stay
/// within its buffers whatever safe code passes.
///
/// The argument is `Len`, which says nothing. A host kernel sees a `usize`, one of CUDA a 64-bit unsigned integer, and WGSL,
/// which has none, a `u32`.
///
/// ```
/// use dacapo::prelude::*;
///
/// # fn main() -> dacapo::Result<()> {
/// # let device = Device::host()?;
/// # let mut stream = device.stream()?;
/// let program = Program::<(Out<u32>, Len<0>)>::new("iota")
///     .host(|(out, len), _| out.iter_mut().zip(0..len as u32).for_each(|(out, i)| *out = i));
/// let iota = program.load(&device)?;
/// let mut out = stream.alloc::<u32>(3)?;
/// stream.launch(&iota, Grid::covering(3), (&mut out, Len))?;
/// assert_eq!(stream.read(&out)?, [0, 1, 2]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Len<const I: usize>;

/// An element of a buffer, or a scalar: plain data, any bytes of which are a value ([`bytemuck::Pod`]).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not plain data, so it cannot live in device memory",
    label = "not plain data",
    note = "elements and scalars are numbers, arrays of them, and `#[repr(C)]` structs that derive `bytemuck::Pod`"
)]
pub trait Element: Pod {}

#[diagnostic::do_not_recommend]
impl<T: Pod> Element for T {}

/// One parameter of a kernel: [`In<T>`], [`Out<T>`], [`InOut<T>`], [`Uniform<T>`], or a scalar `T` passed by value.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a kernel",
    label = "not a kernel parameter",
    note = "parameters are `In<T>`, `Out<T>`, `InOut<T>`, `Uniform<T>`, `Len<I>` and scalars `T`, where `T` is plain data (`bytemuck::Pod`)"
)]
pub trait Param: sealed::Param {}

/// The parameters of a kernel: a tuple of up to 32 [`Param`]s.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the signature of a kernel",
    label = "not a signature",
    note = "a signature is a tuple of up to 32 parameters, such as `(In<f32>, Out<f32>, f32)`; one parameter is `(In<f32>,)`"
)]
pub trait Signature: sealed::Signature {}

/// One parameter, as loading and launching need it.
#[derive(Clone, Copy, Debug)]
pub enum ParamKind {
    /// A buffer.
    Buffer(BufferParam),
    /// A value of so many bytes.
    Scalar(usize),
    /// The element count of another argument.
    Len(usize),
}

impl ParamKind {
    pub(crate) fn buffer(&self) -> Option<&BufferParam> {
        match self {
            ParamKind::Buffer(param) => Some(param),
            ParamKind::Scalar(_) | ParamKind::Len(_) => None,
        }
    }
}

/// A buffer parameter, as checks at launch need it.
#[derive(Clone, Copy, Debug)]
pub struct BufferParam {
    /// Bytes of one element.
    pub(crate) element: usize,
    pub(crate) role: Role,
}

/// What a kernel does with a buffer parameter, and where its bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It reads a buffer.
    Input,
    /// It writes a buffer.
    Output,
    /// It reads a table of the host's.
    Table,
}

/// A parameter as it is written in the signature, for backends that know the types of their code's parameters.
#[cfg(feature = "wgpu")]
#[derive(Clone, Copy, Debug)]
pub struct ParamType {
    /// `In`, `Out`, `InOut`, `Uniform` or `Len`; empty for a scalar.
    pub(crate) word: &'static str,
    /// What the type of an element or a scalar is called.
    pub(crate) name: fn() -> &'static str,
    pub(crate) id: fn() -> std::any::TypeId,
    pub(crate) bytes: usize,
}

#[cfg(feature = "wgpu")]
impl ParamType {
    const fn of<T: 'static>(word: &'static str) -> Self {
        ParamType {
            word,
            name: std::any::type_name::<T>,
            id: std::any::TypeId::of::<T>,
            bytes: size_of::<T>(),
        }
    }
}

pub(crate) mod sealed {
    use super::*;

    /// How a parameter is seen by a host kernel, and what a launch check is told of its argument.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be made a parameter of a kernel",
        label = "not a kernel parameter",
        note = "parameters are `In<T>`, `Out<T>`, `InOut<T>`, `Uniform<T>`, `Len<I>` and scalars `T`, where `T` is plain data (`bytemuck::Pod`)"
    )]
    pub trait Param: 'static {
        type View<'a>;
        type Fact;
        const KIND: ParamKind;
        #[cfg(feature = "wgpu")]
        const TYPE: ParamType;
        fn view<'a>(args: &mut HostArgs<'a>) -> Self::View<'a>;
        fn fact(facts: &mut Facts<'_>) -> Self::Fact;
    }

    /// How a whole signature is seen by a host kernel, and by a launch check: one tuple each.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be made the signature of a kernel",
        label = "not a signature",
        note = "a signature is a tuple of up to 32 parameters, such as `(In<f32>, Out<f32>, f32)`"
    )]
    pub trait Signature: 'static {
        type Views<'a>;
        type Facts;
        const PARAMS: &'static [ParamKind];
        /// For each parameter what it asks for, if it is a [`Len`].
        const LENGTHS: &'static [Option<Length>];
        #[cfg(feature = "wgpu")]
        const TYPES: &'static [ParamType];
        fn views<'a>(args: &mut HostArgs<'a>) -> Self::Views<'a>;
        fn facts(facts: Facts<'_>) -> Self::Facts;
    }
}

impl<T: Pod> sealed::Param for In<T> {
    type View<'a> = &'a [T];
    type Fact = usize;
    const KIND: ParamKind = ParamKind::Buffer(BufferParam { element: size_of::<T>(), role: Role::Input });
    #[cfg(feature = "wgpu")]
    const TYPE: ParamType = ParamType::of::<T>("In");
    fn view<'a>(args: &mut HostArgs<'a>) -> &'a [T] {
        args.input()
    }
    fn fact(facts: &mut Facts<'_>) -> usize {
        facts.length()
    }
}

impl<T: Pod> sealed::Param for Out<T> {
    type View<'a> = &'a mut [T];
    type Fact = usize;
    const KIND: ParamKind = ParamKind::Buffer(BufferParam { element: size_of::<T>(), role: Role::Output });
    #[cfg(feature = "wgpu")]
    const TYPE: ParamType = ParamType::of::<T>("Out");
    fn view<'a>(args: &mut HostArgs<'a>) -> &'a mut [T] {
        args.output()
    }
    fn fact(facts: &mut Facts<'_>) -> usize {
        facts.length()
    }
}

impl<T: Pod> sealed::Param for InOut<T> {
    type View<'a> = &'a mut [T];
    type Fact = usize;
    const KIND: ParamKind = ParamKind::Buffer(BufferParam { element: size_of::<T>(), role: Role::Output });
    #[cfg(feature = "wgpu")]
    const TYPE: ParamType = ParamType::of::<T>("InOut");
    fn view<'a>(args: &mut HostArgs<'a>) -> &'a mut [T] {
        args.output()
    }
    fn fact(facts: &mut Facts<'_>) -> usize {
        facts.length()
    }
}

impl<T: Pod> sealed::Param for Uniform<T> {
    type View<'a> = &'a [T];
    type Fact = usize;
    const KIND: ParamKind = ParamKind::Buffer(BufferParam { element: size_of::<T>(), role: Role::Table });
    #[cfg(feature = "wgpu")]
    const TYPE: ParamType = ParamType::of::<T>("Uniform");
    fn view<'a>(args: &mut HostArgs<'a>) -> &'a [T] {
        args.input()
    }
    fn fact(facts: &mut Facts<'_>) -> usize {
        facts.length()
    }
}

impl<const I: usize> sealed::Param for Len<I> {
    type View<'a> = usize;
    type Fact = usize;
    const KIND: ParamKind = ParamKind::Len(I);
    #[cfg(feature = "wgpu")]
    const TYPE: ParamType = ParamType::of::<u32>("Len");
    fn view<'a>(args: &mut HostArgs<'a>) -> usize {
        args.scalar::<u64>() as usize
    }
    fn fact(facts: &mut Facts<'_>) -> usize {
        facts.scalar::<u64>() as usize
    }
}

#[diagnostic::do_not_recommend]
impl<T: Pod> sealed::Param for T {
    type View<'a> = T;
    type Fact = T;
    const KIND: ParamKind = ParamKind::Scalar(size_of::<T>());
    #[cfg(feature = "wgpu")]
    const TYPE: ParamType = ParamType::of::<T>("");
    fn view<'a>(args: &mut HostArgs<'a>) -> T {
        args.scalar()
    }
    fn fact(facts: &mut Facts<'_>) -> T {
        facts.scalar()
    }
}

impl<T: Pod> Param for In<T> {}
impl<T: Pod> Param for Out<T> {}
impl<T: Pod> Param for InOut<T> {}
impl<T: Pod> Param for Uniform<T> {}
impl<const I: usize> Param for Len<I> {}
#[diagnostic::do_not_recommend]
impl<T: Pod> Param for T {}

macro_rules! signatures {
    ($($param:ident)*) => {
        impl<$($param: Param),*> sealed::Signature for ($($param,)*) {
            type Views<'a> = ($($param::View<'a>,)*);
            type Facts = ($($param::Fact,)*);
            const PARAMS: &'static [ParamKind] = &[$($param::KIND),*];
            const LENGTHS: &'static [Option<Length>] = &lengths([$($param::KIND),*]);
            #[cfg(feature = "wgpu")]
            const TYPES: &'static [ParamType] = &[$($param::TYPE),*];
            #[allow(clippy::unused_unit, reason = "the signature without parameters")]
            fn views<'a>(_args: &mut HostArgs<'a>) -> Self::Views<'a> {
                ($($param::view(_args),)*)
            }
            #[allow(clippy::unused_unit, unused_mut, reason = "the signature without parameters")]
            fn facts(mut _facts: Facts<'_>) -> Self::Facts {
                ($($param::fact(&mut _facts),)*)
            }
        }
        impl<$($param: Param),*> Signature for ($($param,)*) {}
    };
}

/// Calls `$then` once for every length from 0 to 32, with so many pairs of names.
macro_rules! up_to_32 {
    ($then:ident) => { up_to_32!(@step $then [] [
        P0 P1 P2 P3 P4 P5 P6 P7 P8 P9 P10 P11 P12 P13 P14 P15
        P16 P17 P18 P19 P20 P21 P22 P23 P24 P25 P26 P27 P28 P29 P30 P31
    ]); };
    (@step $then:ident [$($taken:ident)*] []) => { $then!($($taken)*); };
    (@step $then:ident [$($taken:ident)*] [$next:ident $($rest:ident)*]) => {
        $then!($($taken)*);
        up_to_32!(@step $then [$($taken)* $next] [$($rest)*]);
    };
}

up_to_32!(signatures);

/// Compiles only if every [`Len`] names a buffer or a table of the signature.
pub(crate) const fn check_lengths(params: &[ParamKind]) {
    let mut at = 0;
    while at < params.len() {
        #[allow(clippy::indexing_slicing, reason = "below the length; iterators are not const")]
        if let ParamKind::Len(of) = params[at] {
            assert!(
                of < params.len() && matches!(params[of], ParamKind::Buffer(_)),
                "`Len<I>` is the element count of argument `I`, counted from 0, which must be a buffer or a table"
            );
        }
        at += 1;
    }
}
