//! A program with a source that promises nothing loads as an `UncheckedKernel`, on every backend.

use dacapo::Unchecked;
use dacapo::prelude::*;

fn load(program: &Program<(InOut<f32>, u32), Unchecked>, device: &Device) -> Kernel<(InOut<f32>, u32)> {
    program.load(device).unwrap()
}

fn main() {}
