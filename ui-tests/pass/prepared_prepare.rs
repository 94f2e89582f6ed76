//! A capture that was cancelled may be prepared anew.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let prepared = Device::host()?.stream()?.prepare()?;
    let again = prepared.cancel().prepare()?;
    again.cancel().sync()
}
