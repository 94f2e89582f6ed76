//! Store numbers, or structs of numbers that derive `Pod`.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut s = Device::host()?.stream()?;
    let flags = s.alloc::<u8>(4)?;
    let points = s.alloc::<[f32; 3]>(4)?;
    assert_eq!(flags.len(), points.len());
    Ok(())
}
