//! One `begin` for each `prepare`.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let (_first, stream) = Device::host()?.stream()?.prepare()?.begin()?.end()?;
    let (_second, _stream) = stream.prepare()?.begin()?.end()?;
    Ok(())
}
