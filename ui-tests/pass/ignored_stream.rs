//! Bind the stream, and leave the capture on purpose.

#![deny(unused)]

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let prepared = Device::host()?.stream()?.prepare()?;
    drop(prepared.cancel());
    Ok(())
}
