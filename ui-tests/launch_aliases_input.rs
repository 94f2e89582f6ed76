//! One buffer as input and output of one launch would be read while it is written: take an `InOut`, or two buffers.

use dacapo::prelude::*;

fn alias(s: &mut Stream, add: &Kernel<(In<f32>, Out<f32>)>, x: &mut Buffer<f32>) -> dacapo::Result<()> {
    s.launch(add, Grid::covering(4), (&*x, &mut *x))
}

fn main() {}
