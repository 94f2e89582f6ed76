//! The destination is `&mut`.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut s = Device::host()?.stream()?;
    let from = s.alloc::<f32>(4)?;
    let mut to = s.alloc::<f32>(4)?;
    s.copy(&from, &mut to)
}
