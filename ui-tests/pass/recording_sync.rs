//! End the recording; then the stream, or the ticket of one replay, can be waited for.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let recording = Device::host()?.stream()?.prepare()?.begin()?;
    let (mut graph, mut stream) = recording.end()?;
    let ticket = graph.replay(&mut stream)?;
    ticket.wait()?;
    stream.sync()
}
