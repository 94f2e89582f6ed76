//! A kernel over `f32` would take the bytes of another type for floats: make the buffer of the right type, or `cast` it.

use dacapo::prelude::*;

fn wrong_type(s: &mut Stream, double: &Kernel<(InOut<f32>,)>, x: &mut Buffer<u32>) -> dacapo::Result<()> {
    s.launch(double, Grid::covering(4), (&mut *x,))
}

fn main() {}
