//! The destination is `&mut`.

use dacapo::prelude::*;

fn clear(s: &mut Stream, to: &mut Buffer<f32>) -> dacapo::Result<()> {
    s.fill(to, 0.0)
}

pub fn main() -> dacapo::Result<()> {
    let mut s = Device::host()?.stream()?;
    let mut to = s.alloc(4)?;
    clear(&mut s, &mut to)
}
