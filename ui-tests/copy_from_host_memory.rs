//! `copy` goes from device memory to device memory: `write` brings host memory there.

use dacapo::prelude::*;

fn upload(s: &mut Stream, from: &Vec<f32>, to: &mut Buffer<f32>) -> dacapo::Result<()> {
    s.copy(from, to)
}

fn main() {}
