//! The caller of `launch_unchecked` says why this call is safe.

use dacapo::prelude::*;
use dacapo::{LaunchUnchecked, UncheckedKernel};

pub fn launch<B: Backend>(
    s: &mut impl Enqueue<B>,
    scale: &UncheckedKernel<(InOut<f32>, u32), B>,
    x: &mut Buffer<f32, B>,
) -> dacapo::Result<()> {
    let n = x.len() as u32;
    // SAFETY: the kernel touches `n` elements, and there are as many.
    unsafe { s.launch_unchecked(scale, Grid::covering(x.len()), (x, n)) }
}

pub fn main() {}
