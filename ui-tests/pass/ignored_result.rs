//! Take the stream out of either outcome.

#![deny(unused)]

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let stream = Device::host()?.stream()?;
    let stream = match stream.prepare() {
        Ok(prepared) => prepared.cancel(),
        Err(refused) => refused.into_parts().0,
    };
    assert!(stream.window().is_none());
    Ok(())
}
