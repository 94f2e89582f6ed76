//! Go on with the stream that `abort` returns.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let stream = Device::host()?.stream()?.prepare()?.begin()?;
    let stream = stream.abort();
    let _sealed = stream.prepare()?.begin()?.end()?;
    Ok(())
}
