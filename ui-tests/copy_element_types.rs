//! A copy moves elements of one type: nothing is converted.

use dacapo::prelude::*;

fn convert(s: &mut Stream, from: &Buffer<u32>, to: &mut Buffer<f32>) -> dacapo::Result<()> {
    s.copy(from, to)
}

fn main() {}
