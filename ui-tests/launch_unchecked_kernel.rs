//! A kernel that promises nothing is launched by `launch_unchecked`, which is `unsafe`: somebody has to promise it for the call.

use dacapo::UncheckedKernel;
use dacapo::prelude::*;

fn launch(s: &mut Stream, scale: &UncheckedKernel<(InOut<f32>, u32)>, x: &mut Buffer<f32>) {
    s.launch(scale, Grid::covering(4), (x, 4u32)).unwrap();
}

fn main() {}
