//! Two outputs with the same bytes would be written twice at once: split the buffer, or take two.

use dacapo::prelude::*;

fn alias(s: &mut Stream, zero: &Kernel<(Out<f32>, Out<f32>)>, x: &mut Buffer<f32>) -> dacapo::Result<()> {
    s.launch(zero, Grid::covering(4), (&mut *x, &mut *x))
}

fn main() {}
