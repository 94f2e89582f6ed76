//! For a window that is wider than a closure, take the transitions of the stream itself.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let recording = Device::host()?.stream()?.prepare()?.begin()?;
    let _sealed = recording.end()?;
    Ok(())
}
