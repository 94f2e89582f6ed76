//! `split_off` makes of a part something that can be stored and returned.

use dacapo::prelude::*;

fn second_half(s: &mut Stream) -> dacapo::Result<Buffer<f32>> {
    let mut x = s.alloc::<f32>(4)?;
    x.split_off(2)
}

pub fn main() -> dacapo::Result<()> {
    let mut s = Device::host()?.stream()?;
    assert_eq!(second_half(&mut s)?.len(), 2);
    Ok(())
}
