//! A `Slice` is shared, so that a kernel cannot write it: take `slice_mut`.

use dacapo::prelude::*;

fn shared(s: &mut Stream, zero: &Kernel<(Out<f32>,)>, x: &mut Buffer<f32>) -> dacapo::Result<()> {
    s.launch(zero, Grid::covering(2), (x.slice(..2)?,))
}

fn main() {}
