//! A bare number does not say whether it counts threads or blocks: write `Grid::covering(4)`.

use dacapo::prelude::*;

fn bare(s: &mut Stream, double: &Kernel<(InOut<f32>,)>, x: &mut Buffer<f32>) -> dacapo::Result<()> {
    s.launch(double, 4, (&mut *x,))
}

fn main() {}
