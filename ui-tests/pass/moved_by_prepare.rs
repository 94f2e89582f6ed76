//! Go on with the stream that `prepare` returns.

use dacapo::prelude::*;

fn main() -> dacapo::Result<()> {
    let stream = Device::host()?.stream()?;
    let mut stream = stream.prepare()?;
    stream.sync()
}
