//! Arguments are one tuple, also when there is only one of them: `(&mut x,)`.

use dacapo::prelude::*;

fn bare(s: &mut Stream, double: &Kernel<(InOut<f32>,)>, x: &mut Buffer<f32>) -> dacapo::Result<()> {
    s.launch(double, Grid::covering(4), x)
}

fn main() {}
