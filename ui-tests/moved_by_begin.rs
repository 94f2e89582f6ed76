//! `begin` takes the prepared stream, so that no warm-up can run inside the recording: go on with what it returns.

use dacapo::Prepared;
use dacapo::prelude::*;

fn stale(mut stream: Stream<Prepared>, x: &mut Buffer<f32>) -> dacapo::Result<()> {
    let _recording = stream.begin()?;
    stream.fill(x, 1.0)
}

fn main() {}
