//! `prepare` takes the stream, so that no stream in no capture is left beside its window: go on with what it returns.

use dacapo::prelude::*;

fn stale(mut stream: Stream) -> dacapo::Result<()> {
    let _prepared = stream.prepare()?;
    stream.sync()
}

fn main() {}
