//! How many blocks a launch has: known at the call, or found in a buffer when it runs.

#![forbid(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use crate::access::Access;
use crate::backend::Backend;
use crate::buffer::Source;
use crate::error::{Error, Result};
use crate::kernel::args::{Named, UseOf};
use crate::kernel::check::Checks;
use crate::kernel::signature::{BufferParam, Role};
use crate::kernel::{Grid, Loaded};

/// How many blocks a launch on `B` has: a [`Grid`], or an [`IndirectGrid`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say how many blocks a launch on `{B}` has",
    label = "not a grid of `{B}`",
    note = "pass `Grid::covering(threads)` or `Grid::blocks(blocks)`, each of `n`, `(x, y)` or `(x, y, z)`; or `Grid::indirect(&counts)`, with a buffer on the kernel's backend"
)]
pub trait Blocks<B: Backend>: sealed::Blocks<B> {}

/// As many blocks as a buffer says when the launch runs; made by [`Grid::indirect`].
pub struct IndirectGrid<'c, B: Backend> {
    counts: Named<B>,
    /// Lent until the call, so that no launch writes what it is counted by.
    _lent: PhantomData<&'c ()>,
}

impl Grid {
    /// As many blocks in x, y and z as the three elements of `counts` say when the launch runs: at once, or on each replay.
    ///
    /// The launch reads them like an argument: it comes after what writes them, and is skipped if that failed. A zero among them
    /// launches nothing, which is not an error. One that is more than the device allows (65,535 is allowed everywhere) launches
    /// nothing either: the host finds it when the launch runs, and taints its outputs; a GPU tells nobody.
    ///
    /// How much the launch writes depends on the counts. An [`Out`](crate::Out) promises that it is all of it, whatever they are;
    /// a kernel that leaves a part as it was takes an [`InOut`](crate::InOut). One in chunks is divided along z.
    ///
    /// Not everything can be launched so: a launch without exactly three counts is refused
    /// ([`Error::BlockCounts`](crate::Error::BlockCounts)), and so is one of a kernel with
    /// [checks](crate::Program::check), which need the grid, and every one on CUDA, whose driver has no such launch
    /// ([`Error::Unsupported`](crate::Error::Unsupported)). There, launch as many blocks as there may be, and let each compare
    /// its number with the count, as an argument.
    ///
    /// ```
    /// use dacapo::prelude::*;
    ///
    /// # fn main() -> dacapo::Result<()> {
    /// # let device = Device::host()?;
    /// # let mut stream = device.stream()?;
    /// let count = Program::<(InOut<u32>,)>::new("count")
    ///     .block(64, 1, 1)
    ///     .host(|(threads,), grid| threads[0] += grid.width() as u32)
    ///     .load(&device)?;
    /// let (mut counts, mut threads) = (stream.alloc::<u32>(3)?, stream.alloc::<u32>(1)?);
    /// let (mut graph, ()) = stream.record(|work| work.launch(&count, Grid::indirect(&counts), (&mut threads,)))?;
    /// for blocks in [2, 0, 3] {
    ///     stream.write(&mut counts, &[blocks, 1, 1])?;
    ///     graph.replay(&mut stream)?;
    /// }
    /// assert_eq!(stream.read(&threads)?, [5 * 64]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn indirect<'c, B, C>(counts: C) -> IndirectGrid<'c, B>
    where
        B: Backend,
        C: Source<B, Element = u32> + 'c,
    {
        IndirectGrid { counts: Named::new(counts.source(), Access::Read), _lent: PhantomData }
    }
}

impl<B: Backend> std::fmt::Debug for IndirectGrid<'_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IndirectGrid").finish_non_exhaustive()
    }
}

impl<B: Backend> Blocks<B> for Grid {}
impl<B: Backend> Blocks<B> for IndirectGrid<'_, B> {}

pub(crate) mod sealed {
    use super::*;

    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be made something that says how many blocks a launch has",
        label = "only the grids of this crate do",
        note = "make a `Grid` of it at the call: `Grid::covering(threads)` or `Grid::blocks(blocks)`"
    )]
    pub trait Blocks<B: Backend> {
        /// The grid, or the least that there may be while it is not known.
        fn grid(&self) -> Grid;
        /// Where the counts are of one that is not known yet.
        fn counts(&self) -> Option<&Named<B>>;
    }

    #[diagnostic::do_not_recommend]
    impl<B: Backend> Blocks<B> for Grid {
        #[inline]
        fn grid(&self) -> Grid {
            *self
        }

        #[inline]
        fn counts(&self) -> Option<&Named<B>> {
            None
        }
    }

    #[diagnostic::do_not_recommend]
    impl<B: Backend> Blocks<B> for IndirectGrid<'_, B> {
        #[inline]
        fn grid(&self) -> Grid {
            Grid::blocks((1, 1, 1))
        }

        #[inline]
        fn counts(&self) -> Option<&Named<B>> {
            Some(&self.counts)
        }
    }
}

/// How many counts there are.
const AXES: usize = 3;

/// Why the counts cannot be those of a launch of `kernel`, if they cannot.
#[cold]
pub(crate) fn refusal<B: Backend>(
    kernel: &Loaded<B>,
    checks: &Checks,
    counts: &UseOf<'_, B>,
) -> Option<Error> {
    let unsupported = |reason| Some(Error::Unsupported { operation: "an indirect launch", reason });
    let found = (counts.end - counts.start) / size_of::<u32>();
    match B::REFUSES_INDIRECT {
        Some(reason) => unsupported(reason),
        None if !checks.is_empty() => unsupported(
            "the kernel has a check, which needs the grid before the launch runs; take `Grid::blocks`",
        ),
        None if found != AXES => Some(Error::BlockCounts { kernel: kernel.name.clone(), found }),
        None => None,
    }
}

/// The grid that the bytes of three counts say.
pub(crate) fn counted(bytes: &[u8]) -> Option<Grid> {
    let counts: &[[u8; size_of::<u32>()]; AXES] = bytes.as_chunks().0.try_into().ok()?;
    let [x, y, z] = counts.map(|count| u32::from_ne_bytes(count) as usize);
    Some(Grid::blocks((x, y, z)))
}

/// Whether every output divides evenly over `outer` rows, of buffers of so many bytes.
pub(crate) fn chunkable<'p>(
    kernel: &Arc<str>,
    buffers: impl Iterator<Item = (&'p BufferParam, usize)>,
    outer: usize,
) -> Result<()> {
    for (param, bytes) in buffers.filter(|(param, _)| param.role == Role::Output) {
        let len = bytes / param.element;
        if outer == 0 || !len.is_multiple_of(outer) {
            return Err(Error::Unchunkable { kernel: kernel.clone(), len, outer });
        }
    }
    Ok(())
}
