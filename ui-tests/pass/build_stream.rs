//! A device makes streams, and transitions lead to the other phases.

use dacapo::Recording;
use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let recording: Stream<Recording> = Device::host()?.stream()?.prepare()?.begin()?;
    let _sealed = recording.end()?;
    Ok(())
}
