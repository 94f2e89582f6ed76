//! Where a phase is wanted as a value, there is its name.

use dacapo::PhaseName;
use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let recording = Device::host()?.stream()?.prepare()?.begin()?;
    assert_eq!(recording.phase(), PhaseName::Recording);
    Ok(())
}
