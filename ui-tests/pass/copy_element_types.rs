//! To copy bytes as they are, `cast` the source to the type of the destination.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut s = Device::host()?.stream()?;
    let from = s.alloc::<u32>(4)?;
    let mut to = s.alloc::<f32>(4)?;
    s.copy(from.as_slice().cast::<f32>()?, &mut to)
}
