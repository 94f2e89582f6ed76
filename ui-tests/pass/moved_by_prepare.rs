//! Go on with the stream that `prepare` returns.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let stream = Device::host()?.stream()?;
    let mut stream = stream.prepare()?;
    stream.sync()
}
