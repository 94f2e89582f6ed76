//! Bind the graph and the stream.

#![deny(unused)]

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let recording = Device::host()?.stream()?.prepare()?.begin()?;
    let (mut graph, mut stream) = recording.end()?;
    graph.replay(&mut stream)?;
    Ok(())
}
