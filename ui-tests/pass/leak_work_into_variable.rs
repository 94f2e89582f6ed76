//! What leaves the closure is what it returns: here a buffer that the recording made.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let (mut graph, kept) = stream.record(|work| {
        let mut y = work.alloc::<f32>(4)?;
        work.fill(&mut y, 1.0)?;
        Ok(y)
    })?;
    graph.replay(&mut stream)?;
    assert_eq!(stream.read(&kept)?, [1.0; 4]);
    Ok(())
}
