//! `end` gives back a stream in no capture, which may prepare again.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let recording = Device::host()?.stream()?.prepare()?.begin()?;
    let (_graph, stream) = recording.end()?;
    let again = stream.prepare()?;
    again.cancel().sync()
}
