//! Two halves of one buffer share no byte, and may be copied one to the other.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut s = Device::host()?.stream()?;
    let mut x = s.alloc::<f32>(4)?;
    let (left, right) = x.split_at_mut(2)?;
    s.copy(&left, right)
}
