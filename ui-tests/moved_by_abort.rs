//! A recording that was discarded has no graph: prepare and record again with the stream that `abort` returns.

use dacapo::Recording;
use dacapo::prelude::*;

fn stale(stream: Stream<Recording>) -> dacapo::Result<()> {
    let _idle = stream.abort();
    let _sealed = stream.end()?;
    Ok(())
}

fn main() {}
