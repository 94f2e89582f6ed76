//! `end` gives two things back, and losing either is a mistake: bind the graph and the stream.

#![deny(unused)]

use dacapo::prelude::*;

fn main() -> dacapo::Result<()> {
    let recording = Device::host()?.stream()?.prepare()?.begin()?;
    recording.end()?;
    Ok(())
}
