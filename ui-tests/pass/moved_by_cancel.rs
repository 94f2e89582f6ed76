//! Go on with the stream that `cancel` returns.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let stream = Device::host()?.stream()?.prepare()?;
    let stream = stream.cancel();
    let _sealed = stream.prepare()?.begin()?.end()?;
    Ok(())
}
