//! `cancel` leaves a capture that has not begun to record.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    Device::host()?.stream()?.prepare()?.cancel().sync()
}
