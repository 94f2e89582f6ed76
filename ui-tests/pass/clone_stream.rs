//! A device makes as many streams as are wanted.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let stream = Device::host()?.stream()?;
    let other = stream.device().stream()?;
    assert_ne!(stream.id(), other.id());
    Ok(())
}
