//! A kernel only reads its inputs, and says so: pass `&x`, which leaves the buffer free for others to read.

use dacapo::prelude::*;

fn exclusive(s: &mut Stream, look: &Kernel<(In<f32>,)>, x: &mut Buffer<f32>) -> dacapo::Result<()> {
    s.launch(look, Grid::covering(4), (&mut *x,))
}

fn main() {}
