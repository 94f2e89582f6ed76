//! A graph that nobody keeps was recorded for nothing: bind it, and replay it.

#![deny(unused)]

use dacapo::prelude::*;

fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    stream.record(|_work| Ok(()))?;
    Ok(())
}
