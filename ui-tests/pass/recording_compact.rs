//! `abort` gives back a stream in no capture, which may compact.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let recording = Device::host()?.stream()?.prepare()?.begin()?;
    recording.abort().compact().map(drop)
}
