//! It loads as what it is.

use dacapo::prelude::*;
use dacapo::{Unchecked, UncheckedKernel};

type S = (InOut<f32>, u32);

pub fn load<B: Backend>(
    program: &Program<S, Unchecked>,
    device: &Device<B>,
) -> dacapo::Result<UncheckedKernel<S, B>> {
    program.load(device)
}

pub fn main() {}
