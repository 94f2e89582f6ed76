//! Only what was begun is aborted.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    Device::host()?.stream()?.prepare()?.begin()?.abort().sync()
}
