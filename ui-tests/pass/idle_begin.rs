//! `prepare`, then `begin`.

use dacapo::prelude::*;
use dacapo::{Recording, Result};

fn begin(stream: Stream) -> Result<Stream<Recording>> {
    Ok(stream.prepare()?.begin()?)
}

pub fn main() -> Result<()> {
    begin(Device::host()?.stream()?)?.abort().sync()
}
