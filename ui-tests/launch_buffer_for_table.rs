//! A `Uniform` takes host memory, which the launch brings along: a buffer is an `In`.

use dacapo::prelude::*;

fn device_memory(s: &mut Stream, look: &Kernel<(Uniform<f32>,)>, x: &Buffer<f32>) -> dacapo::Result<()> {
    s.launch(look, Grid::covering(4), (x,))
}

fn main() {}
