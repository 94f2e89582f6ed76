//! Take the stream out, or make an error of it.

#![deny(unused)]

use dacapo::prelude::*;

fn main() -> dacapo::Result<()> {
    match Device::host()?.stream()?.prepare() {
        Ok(prepared) => drop(prepared.cancel()),
        Err(refused) => return Err(refused.into_error()),
    }
    Ok(())
}
