//! To see the bytes as another type, `cast` the source.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut s = Device::host()?.stream()?;
    let x = s.alloc::<f32>(4)?;
    let bits: Vec<u32> = s.read(x.as_slice().cast::<u32>()?)?;
    assert_eq!(bits, [0; 4]);
    Ok(())
}
