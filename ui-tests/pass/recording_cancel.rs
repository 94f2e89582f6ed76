//! `abort` discards a recording.

use dacapo::prelude::*;

fn main() -> dacapo::Result<()> {
    Device::host()?.stream()?.prepare()?.begin()?.abort().sync()
}
