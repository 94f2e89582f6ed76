//! Host kernels: closures, called once a launch or in parallel over rows.

#![allow(unsafe_code, reason = "device memory is handed to kernels as slices")]

use std::ops::Range;

use rayon::iter::{IntoParallelIterator, ParallelIterator};

use crate::backend::command::ArgsRef;
use crate::backend::host::args::HostArgs;
use crate::backend::host::{Host, Machine};
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
    pub(crate) unsafe fn run(&self, machine: &Machine, args: ArgsRef<'_, Host>, extent: Extent) {
        match &self.form {
            Form::Once(call) => {
                // SAFETY: the caller's contract, word for word; there is one call, so no rows to keep apart.
                let mut args = unsafe { HostArgs::new(args.regions, args.scalars, None) };
                call(&mut args, extent);
            }
            Form::Chunks(call) => {
                let outer = extent.outer();
                let pool = machine.chunk_pool();
                let pieces = count(outer, pool.map_or(1, rayon::ThreadPool::current_num_threads));
                let run = |index: usize| {
                    let _on_device = OnDevice::enter();
                    let rows = piece(outer, pieces, index);
                    let part = Some((rows.clone(), outer));
                    // SAFETY: the caller's contract, and `piece` gives each call rows of its own. Inputs are shared by
                    // the calls, and none of them writes one.
                    let mut args = unsafe { HostArgs::new(args.regions, args.scalars, part) };
                    call(&mut args, Chunk { rows, grid: extent });
                };
                match pool {
                    Some(pool) => pool.install(|| (0..pieces).into_par_iter().for_each(run)),
                    None => (0..pieces).for_each(run),
                }
            }
        }
    }
}

/// A few pieces for each thread, which [`piece`] cuts.
fn count(outer: usize, threads: usize) -> usize {
    outer.min(threads.saturating_mul(4)).max(1)
}

/// One of `count` disjoint runs of rows that cover `0..outer`.
fn piece(outer: usize, count: usize, index: usize) -> Range<usize> {
    // In `u128`, since a product of two lengths may not fit.
    let border = |index: usize| (outer as u128 * index as u128 / count as u128) as usize;
    border(index)..border(index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_every_row_once() {
        for (outer, threads) in [0, 1, 2, 7, 100, 1543].into_iter().zip([1, 2, 3].into_iter().cycle()) {
            let count = count(outer, threads);
            let rows: Vec<usize> = (0..count).flat_map(|index| piece(outer, count, index)).collect();
            assert_eq!(rows, (0..outer).collect::<Vec<_>>());
        }
    }
}
