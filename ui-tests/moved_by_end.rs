//! A recording ends once, and nothing can be appended to its graph: go on with the stream that `end` returns.

use dacapo::Recording;
use dacapo::prelude::*;

fn stale(mut stream: Stream<Recording>, x: &mut Buffer<f32>) -> dacapo::Result<()> {
    let (_graph, _idle) = stream.end()?;
    stream.fill(x, 1.0)
}

fn main() {}
