//! Host kernels: closures, called once a launch or in parallel over rows.

#![allow(unsafe_code, reason = "device memory is handed to kernels as slices")]

use std::ops::Range;

use rayon::iter::{IntoParallelIterator, ParallelIterator};

use crate::backend::ArgBlock;
use crate::backend::host::Host;
use crate::backend::host::args::HostArgs;
use crate::callback::OnDevice;
use crate::kernel::grid::Extent;

/// A kernel of the host.
pub struct HostCode {
    form: Form,
}

type Once = Box<dyn Fn(&mut HostArgs<'_>, Extent) + Send + Sync>;
type Chunks = Box<dyn Fn(&mut HostArgs<'_>, Chunk) + Send + Sync>;

enum Form {
    Once(Once),
    Chunks(Chunks),
}

/// The part of a launch that one call of a kernel in chunks is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    rows: Range<usize>,
    grid: Extent,
}

impl Chunk {
    /// The rows of this call: indices along the last extent that the grid was given.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// The grid of the whole launch.
    pub fn grid(&self) -> Extent {
        self.grid
    }
}

impl HostCode {
    pub(crate) fn once(call: impl Fn(&mut HostArgs<'_>, Extent) + Send + Sync + 'static) -> Self {
        HostCode { form: Form::Once(Box::new(call)) }
    }

    pub(crate) fn chunks(call: impl Fn(&mut HostArgs<'_>, Chunk) + Send + Sync + 'static) -> Self {
        HostCode { form: Form::Chunks(Box::new(call)) }
    }

    pub(crate) fn is_chunked(&self) -> bool {
        matches!(self.form, Form::Chunks(_))
    }

    /// Runs the kernel. A panic passes through.
    ///
    /// # Safety
    /// For as long as this runs, no byte of a region of `args` that is written is used by anything else, and none that
    /// is read is written by anything else.
    pub(crate) unsafe fn run(&self, args: &ArgBlock<Host>, extent: Extent) {
        match &self.form {
            Form::Once(call) => {
                // SAFETY: the caller's contract, word for word; there is one call, so no rows to keep apart.
                let mut args = unsafe { HostArgs::new(&args.regions, &args.scalars, None) };
                call(&mut args, extent);
            }
            Form::Chunks(call) => {
                let outer = extent.outer();
                pieces(outer).for_each(|rows| {
                    let _on_device = OnDevice::enter();
                    let part = Some((rows.clone(), outer));
                    // SAFETY: the caller's contract, and `pieces` gives disjoint rows. Inputs are shared by the calls,
                    // and none of them writes one.
                    let mut args = unsafe { HostArgs::new(&args.regions, &args.scalars, part) };
                    call(&mut args, Chunk { rows, grid: extent });
                });
            }
        }
    }
}

/// Disjoint runs of rows that cover `0..outer`, a few for each thread.
fn pieces(outer: usize) -> impl ParallelIterator<Item = Range<usize>> {
    let pieces = outer.min(rayon::current_num_threads() * 4).max(1);
    // In `u128`, since a product of two lengths may not fit.
    let border = move |piece: usize| (outer as u128 * piece as u128 / pieces as u128) as usize;
    (0..pieces).into_par_iter().map(move |piece| border(piece)..border(piece + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_every_row_once() {
        for outer in [0, 1, 2, 7, 100, 1543] {
            let mut rows: Vec<usize> = pieces(outer).flat_map_iter(|rows| rows).collect();
            rows.sort_unstable();
            assert_eq!(rows, (0..outer).collect::<Vec<_>>());
        }
    }
}
