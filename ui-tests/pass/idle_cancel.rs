//! Only what was prepared is cancelled.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    Device::host()?.stream()?.prepare()?.cancel().sync()
}
