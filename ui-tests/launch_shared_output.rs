//! A kernel writes its outputs, so that a shared reference does not do: pass `&mut`.

use dacapo::prelude::*;

fn shared(s: &mut Stream, zero: &Kernel<(Out<f32>,)>, x: &Buffer<f32>) -> dacapo::Result<()> {
    s.launch(zero, Grid::covering(4), (x,))
}

fn main() {}
