//! Go on with the stream that `cancel` returns.

use dacapo::prelude::*;

fn main() -> dacapo::Result<()> {
    let stream = Device::host()?.stream()?.prepare()?;
    let stream = stream.cancel();
    stream.prepare()?.begin()?.end()?;
    Ok(())
}
