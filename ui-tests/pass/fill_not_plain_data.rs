//! Fill with what the buffer holds.

use dacapo::prelude::*;

struct Pixel(f32);

fn clear(s: &mut Stream, pixels: &mut Buffer<f32>) -> dacapo::Result<()> {
    s.fill(pixels, Pixel(0.0).0)
}

pub fn main() -> dacapo::Result<()> {
    let mut s = Device::host()?.stream()?;
    let mut pixels = s.alloc(4)?;
    clear(&mut s, &mut pixels)
}
