//! The destination is `&mut`.

use dacapo::prelude::*;

fn upload(s: &mut Stream, to: &mut Buffer<f32>) -> dacapo::Result<()> {
    s.write(to, &[1.0; 4])
}

pub fn main() -> dacapo::Result<()> {
    let mut s = Device::host()?.stream()?;
    let mut to = s.alloc(4)?;
    upload(&mut s, &mut to)
}
