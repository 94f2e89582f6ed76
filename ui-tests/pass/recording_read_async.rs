//! The stream that `end` gives back reads without blocking, after the replay.

use dacapo::prelude::*;
use dacapo::{ReadFuture, Recording, Result};

fn read_later(mut recording: Stream<Recording>, x: &mut Buffer<f32>) -> Result<ReadFuture<f32>> {
    recording.fill(&mut *x, 2.0)?;
    let (mut graph, mut stream) = recording.end()?;
    graph.replay(&mut stream)?;
    stream.read_async(&*x)
}

pub fn main() -> Result<()> {
    let mut stream = Device::host()?.stream()?;
    let mut x = stream.alloc::<f32>(4)?;
    drop(read_later(stream.prepare()?.begin()?, &mut x)?);
    Ok(())
}
