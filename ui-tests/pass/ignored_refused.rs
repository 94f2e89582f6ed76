//! Take the stream out, or make an error of it.

#![deny(unused)]

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    match Device::host()?.stream()?.prepare() {
        Ok(prepared) => drop(prepared.cancel()),
        Err(refused) => return Err(refused.into_error()),
    }
    Ok(())
}
