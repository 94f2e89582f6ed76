//! Compact first, and prepare then.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    stream.compact()?;
    stream.prepare()?.cancel().compact().map(drop)
}
