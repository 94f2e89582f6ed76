//! `abort` discards a recording.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    Device::host()?.stream()?.prepare()?.begin()?.abort().sync()
}
