//! A stream that nobody keeps is dropped at once, and its window with it: bind what `prepare` returns.

#![deny(unused)]

use dacapo::prelude::*;

fn main() -> dacapo::Result<()> {
    let stream = Device::host()?.stream()?;
    stream.prepare()?;
    Ok(())
}
