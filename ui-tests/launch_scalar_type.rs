//! A scalar has exactly the type of its parameter: nothing is converted.

use dacapo::prelude::*;

fn wrong_scalar(s: &mut Stream, fill: &Kernel<(Out<f32>, f32)>, x: &mut Buffer<f32>) -> dacapo::Result<()> {
    s.launch(fill, Grid::covering(4), (&mut *x, 1u32))
}

fn main() {}
