//! A refusal holds the stream: take it out, or pass the error on.

#![deny(unused)]

use dacapo::prelude::*;

fn main() -> dacapo::Result<()> {
    if let Err(refused) = Device::host()?.stream()?.prepare() {
        std::convert::identity(refused);
    }
    Ok(())
}
