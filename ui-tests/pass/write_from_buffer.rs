//! Copy from buffer to buffer.

use dacapo::prelude::*;

fn duplicate(s: &mut Stream, from: &Buffer<f32>, to: &mut Buffer<f32>) -> dacapo::Result<()> {
    s.copy(from, to)
}

pub fn main() -> dacapo::Result<()> {
    let mut s = Device::host()?.stream()?;
    let (mut from, mut to) = (s.alloc::<f32>(4)?, s.alloc::<f32>(4)?);
    s.write(&mut from, vec![1.0; 4])?;
    duplicate(&mut s, &from, &mut to)?;
    assert_eq!(s.read(&to)?, [1.0; 4]);
    Ok(())
}
