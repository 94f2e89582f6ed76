//! In an `unsafe` block.

use dacapo::prelude::*;
use dacapo::{LaunchUnchecked, UncheckedKernel};

pub fn launch(s: &mut Stream, scale: &UncheckedKernel<(InOut<f32>, u32)>, x: &mut Buffer<f32>) {
    // SAFETY: the host's kernels are safe code.
    unsafe { s.launch_unchecked(scale, Grid::covering(4), (x, 4u32)) }.unwrap();
}

pub fn main() {}
