//! Go on with the stream that `abort` returns.

use dacapo::prelude::*;

fn main() -> dacapo::Result<()> {
    let stream = Device::host()?.stream()?.prepare()?.begin()?;
    let stream = stream.abort();
    stream.prepare()?.begin()?.end()?;
    Ok(())
}
