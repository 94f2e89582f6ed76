//! A value that fills a buffer is an element of it, and so plain data.

use dacapo::prelude::*;

struct Pixel(f32);

fn clear(s: &mut Stream, pixels: &mut Buffer<f32>) -> dacapo::Result<()> {
    s.fill(pixels, Pixel(0.0))
}

fn main() {}
