//! A launch borrows its buffers: pass `&mut x`, and the buffer is still there to be read.

use dacapo::prelude::*;

fn owned(s: &mut Stream, zero: &Kernel<(Out<f32>,)>, x: Buffer<f32>) -> dacapo::Result<()> {
    s.launch(zero, Grid::covering(4), (x,))
}

fn main() {}
