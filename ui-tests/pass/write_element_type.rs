//! Write elements of the buffer's type.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut s = Device::host()?.stream()?;
    let mut to = s.alloc::<f32>(4)?;
    s.write(&mut to, &[1.0, 2.0, 3.0, 4.0])
}
