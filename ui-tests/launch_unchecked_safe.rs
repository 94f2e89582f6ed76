//! `launch_unchecked` is called in an `unsafe` block, beside the reason why it may be.

use dacapo::prelude::*;
use dacapo::{LaunchUnchecked, UncheckedKernel};

fn launch(s: &mut Stream, scale: &UncheckedKernel<(InOut<f32>, u32)>, x: &mut Buffer<f32>) {
    s.launch_unchecked(scale, Grid::covering(4), (x, 4u32)).unwrap();
}

fn main() {}
