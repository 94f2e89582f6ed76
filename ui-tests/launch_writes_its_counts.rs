//! A launch cannot write the counts that it takes its number of blocks from: give it other memory.

use dacapo::prelude::*;

fn own(s: &mut Stream, next: &Kernel<(InOut<u32>,)>, counts: &mut Buffer<u32>) -> dacapo::Result<()> {
    s.launch(next, Grid::indirect(&*counts), (&mut *counts,))
}

fn main() {}
