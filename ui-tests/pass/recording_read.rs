//! End the recording, replay its graph, and read what the replay wrote.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let mut x = stream.alloc::<f32>(4)?;
    let mut recording = stream.prepare()?.begin()?;
    recording.fill(&mut x, 2.0)?;
    let (mut graph, mut stream) = recording.end()?;
    graph.replay(&mut stream)?;
    assert_eq!(stream.read(&x)?, [2.0; 4]);
    Ok(())
}
