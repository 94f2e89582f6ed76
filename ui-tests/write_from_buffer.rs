//! A write takes host memory: what is on the device already goes from buffer to buffer by `copy`.

use dacapo::prelude::*;

fn duplicate(s: &mut Stream, from: &Buffer<f32>, to: &mut Buffer<f32>) -> dacapo::Result<()> {
    s.write(to, from)
}

fn main() {}
