//! Clean up first, and prepare then.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    stream.memory_cleanup()?;
    stream.prepare()?.cancel().memory_cleanup()
}
