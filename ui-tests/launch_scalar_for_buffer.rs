//! A buffer parameter takes a buffer, and host memory is none: `write` it to one first.

use dacapo::prelude::*;

fn host_memory(s: &mut Stream, look: &Kernel<(In<f32>,)>, x: &[f32]) -> dacapo::Result<()> {
    s.launch(look, Grid::covering(4), (x,))
}

fn main() {}
