//! Bind the graph, and replay it.

#![deny(unused)]

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let (mut graph, ()) = stream.record(|_work| Ok(()))?;
    graph.replay(&mut stream)?;
    Ok(())
}
