//! Read from the stream, after a replay.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let mut x = stream.alloc::<f32>(4)?;
    let (mut graph, ()) = stream.record(|work| work.fill(&mut x, 1.0))?;
    graph.replay(&mut stream)?;
    assert_eq!(stream.read(&x)?, [1.0; 4]);
    Ok(())
}
