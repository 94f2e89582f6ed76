//! Wait on the stream, after the closure.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let (mut graph, ()) = stream.record(|_work| Ok(()))?;
    graph.replay(&mut stream)?;
    stream.sync()
}
