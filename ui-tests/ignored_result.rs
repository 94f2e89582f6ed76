//! A transition may be refused, and then there is no window: look at its result.

#![deny(unused)]

use dacapo::prelude::*;

fn main() -> dacapo::Result<()> {
    let stream = Device::host()?.stream()?;
    stream.prepare();
    Ok(())
}
