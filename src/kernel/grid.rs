//! How many threads a launch has.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::backend::Limits;
use crate::error::{Error, Result};

/// How many threads a launch has: by what they must cover, or in blocks.
///
/// A grid with a zero in it launches nothing, which is not an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    size: Dims,
    unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Threads,
    Blocks,
}

/// One, two or three extents: `n`, `(x, y)` or `(x, y, z)`. Those left out are 1; x runs fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dims {
    size: [usize; 3],
    /// How many extents were given.
    rank: Rank,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rank {
    One,
    Two,
    Three,
}

impl From<usize> for Dims {
    fn from(x: usize) -> Self {
        Dims { size: [x, 1, 1], rank: Rank::One }
    }
}

impl From<(usize, usize)> for Dims {
    fn from((x, y): (usize, usize)) -> Self {
        Dims { size: [x, y, 1], rank: Rank::Two }
    }
}

impl From<(usize, usize, usize)> for Dims {
    fn from((x, y, z): (usize, usize, usize)) -> Self {
        Dims { size: [x, y, z], rank: Rank::Three }
    }
}

impl Grid {
    /// As many blocks as cover `threads` threads: `Grid::covering(n)`, `Grid::covering((width, height))`.
    ///
    /// The last block of a row may reach beyond; a kernel compares its index with the extent that it is given.
    pub fn covering(threads: impl Into<Dims>) -> Self {
        Grid { size: threads.into(), unit: Unit::Threads }
    }

    /// Exactly so many blocks, of the size that the kernel declares.
    pub fn blocks(blocks: impl Into<Dims>) -> Self {
        Grid { size: blocks.into(), unit: Unit::Blocks }
    }

    /// What a launch of `kernel` with blocks of `block` threads comes to; `None` when it comes to nothing.
    #[inline]
    pub(crate) fn resolve(
        self,
        kernel: &Arc<str>,
        block: [u32; 3],
        limits: &Limits,
    ) -> Result<Option<Extent>> {
        let extent = self.extent(block);
        if let Some((limit, requested, allowed)) = exceeded(block, extent.blocks(), limits) {
            return Err(Error::Limit { kernel: kernel.clone(), limit, requested, allowed });
        }
        Ok(self.size.size.iter().all(|size| *size > 0).then_some(extent))
    }

    /// What it comes to with blocks of `block` threads, within the limits or not.
    #[inline]
    pub(crate) fn extent(self, block: [u32; 3]) -> Extent {
        let Dims { size, rank } = self.size;
        Extent { size, block, unit: self.unit, rank }
    }
}

/// How many blocks cover so many threads.
#[inline]
fn covering(threads: usize, block: u32) -> u64 {
    let block = block as usize;
    if threads <= block { u64::from(threads > 0) } else { threads.div_ceil(block.max(1)) as u64 }
}

/// The most blocks of `block` threads that a launch can have along each axis: none, if no block can have so many.
pub(crate) fn most_blocks(block: [u32; 3], limits: &Limits) -> [u64; 3] {
    if exceeded(block, [1; 3], limits).is_none() { limits.max_blocks } else { [0; 3] }
}

/// The first limit that a launch exceeds, with what was requested and what is allowed. A block without threads exceeds
/// one, a grid without blocks none.
#[cold]
fn exceeded(block: [u32; 3], blocks: [u64; 3], limits: &Limits) -> Option<(GridLimit, u64, u64)> {
    let block = block.map(u64::from);
    let threads = block.iter().fold(1u64, |product, size| product.saturating_mul(*size));
    let block = GridLimit::BLOCK.into_iter().zip(block).zip(limits.max_block);
    let block = block.map(|((limit, size), most)| (limit, size, most));
    let whole = [(GridLimit::ThreadsPerBlock, threads, limits.max_threads_per_block)];
    let grid = GridLimit::GRID.into_iter().zip(blocks).zip(limits.max_blocks);
    let grid = grid.map(|((limit, size), most)| (limit, size, most));
    let mut of_block = block.chain(whole);
    of_block
        .find(|(_, size, most)| *size == 0 || size > most)
        .or_else(|| grid.into_iter().find(|(_, size, most)| size > most && !blocks.contains(&0)))
}

/// The grid of one launch, as its kernel sees it.
///
/// As it was given, and what follows from that is worked out when it is asked for: recordings are long lists of these.
#[derive(Clone, Copy)]
pub struct Extent {
    size: [usize; 3],
    block: [u32; 3],
    unit: Unit,
    rank: Rank,
}

impl Extent {
    /// The extent of a launch that is refused anyway.
    pub(crate) fn nothing() -> Self {
        Extent { size: [0; 3], block: [0; 3], unit: Unit::Blocks, rank: Rank::One }
    }

    /// Threads in x, y and z: what [`Grid::covering`] was given.
    pub fn threads(&self) -> [usize; 3] {
        let ([x, y, z], [bx, by, bz]) = (self.size, self.block.map(|threads| threads as usize));
        match self.unit {
            Unit::Threads => self.size,
            Unit::Blocks => [x.saturating_mul(bx), y.saturating_mul(by), z.saturating_mul(bz)],
        }
    }

    /// Blocks in x, y and z.
    #[inline]
    pub fn blocks(&self) -> [u64; 3] {
        let ([x, y, z], [bx, by, bz]) = (self.size, self.block);
        match self.unit {
            Unit::Threads => [covering(x, bx), covering(y, by), covering(z, bz)],
            Unit::Blocks => self.size.map(|blocks| blocks as u64),
        }
    }

    /// Threads of one block in x, y and z.
    #[inline]
    pub fn block(&self) -> [u32; 3] {
        self.block
    }

    /// Threads along x.
    pub fn width(&self) -> usize {
        let [x, _, _] = self.threads();
        x
    }

    /// Threads along y.
    pub fn height(&self) -> usize {
        let [_, y, _] = self.threads();
        y
    }

    /// The last of the extents that the grid was given: `n` of `n`, `y` of `(x, y)`, `z` of `(x, y, z)`, also where
    /// it is 1. What a kernel in chunks is divided along.
    pub fn outer(&self) -> usize {
        let [x, y, z] = self.threads();
        match self.rank {
            Rank::One => x,
            Rank::Two => y,
            Rank::Three => z,
        }
    }
}

impl PartialEq for Extent {
    fn eq(&self, other: &Self) -> bool {
        let facts = |extent: &Self| (extent.threads(), extent.blocks(), extent.block, extent.rank);
        facts(self) == facts(other)
    }
}

impl Eq for Extent {}

impl std::fmt::Debug for Extent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (threads, blocks, block) = (self.threads(), self.blocks(), self.block);
        f.debug_struct("Extent")
            .field("threads", &threads)
            .field("blocks", &blocks)
            .field("block", &block)
            .field("rank", &self.rank)
            .finish()
    }
}

/// Whether there is a block at least, and along each axis no more than `most`.
#[inline]
pub(crate) fn are_within([x, y, z]: [u64; 3], [most_x, most_y, most_z]: &[u64; 3]) -> bool {
    x.wrapping_sub(1) < *most_x && y.wrapping_sub(1) < *most_y && z.wrapping_sub(1) < *most_z
}

/// A limit that a launch can exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GridLimit {
    /// Blocks along x.
    BlocksX,
    /// Blocks along y.
    BlocksY,
    /// Blocks along z.
    BlocksZ,
    /// Threads of a block along x.
    BlockX,
    /// Threads of a block along y.
    BlockY,
    /// Threads of a block along z.
    BlockZ,
    /// Threads of a block in all.
    ThreadsPerBlock,
}

impl GridLimit {
    const GRID: [GridLimit; 3] = [GridLimit::BlocksX, GridLimit::BlocksY, GridLimit::BlocksZ];
    const BLOCK: [GridLimit; 3] = [GridLimit::BlockX, GridLimit::BlockY, GridLimit::BlockZ];
}

impl std::fmt::Display for GridLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            GridLimit::BlocksX => "the number of blocks in x",
            GridLimit::BlocksY => "the number of blocks in y",
            GridLimit::BlocksZ => "the number of blocks in z",
            GridLimit::BlockX => "the block size in x",
            GridLimit::BlockY => "the block size in y",
            GridLimit::BlockZ => "the block size in z",
            GridLimit::ThreadsPerBlock => "the number of threads in a block",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        max_buffer: usize::MAX,
        max_blocks: [100, 10, 10],
        max_block: [64, 64, 8],
        max_threads_per_block: 64,
        alignment: 256,
    };

    fn resolve(grid: Grid, block: [u32; 3]) -> Result<Option<Extent>> {
        grid.resolve(&"k".into(), block, &LIMITS)
    }

    #[test]
    fn a_grid_covers_what_it_is_asked_to_with_whole_blocks() {
        let extent = resolve(Grid::covering((33, 2)), [16, 1, 1]).unwrap().unwrap();
        assert_eq!((extent.threads(), extent.blocks()), ([33, 2, 1], [3, 2, 1]));
        assert_eq!(extent.outer(), 2);
    }

    /// A picture of one row divided along its columns would give a kernel a column's number for a row's.
    #[test]
    fn a_grid_is_divided_along_the_last_extent_that_it_was_given() {
        let outer = |grid| resolve(grid, [16, 1, 1]).unwrap().unwrap().outer();
        assert_eq!(outer(Grid::covering(7)), 7);
        assert_eq!(outer(Grid::covering((7, 1))), 1);
        assert_eq!(outer(Grid::covering((7, 3, 1))), 1);
    }

    #[test]
    fn a_grid_with_a_zero_is_nothing_and_not_an_error() {
        assert_eq!(resolve(Grid::covering((5, 0)), [16, 1, 1]).unwrap(), None);
    }

    #[test]
    fn an_exceeded_limit_is_named_with_both_numbers() {
        let error = resolve(Grid::blocks((1, 11)), [16, 1, 1]).unwrap_err();
        assert_eq!(error.to_string(), "k: the number of blocks in y is 11, and this device allows 1 to 10");
        let error = resolve(Grid::blocks(1), [16, 8, 1]).unwrap_err();
        assert!(matches!(error, Error::Limit { limit: GridLimit::ThreadsPerBlock, requested: 128, .. }));
    }
}
