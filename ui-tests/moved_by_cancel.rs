//! A capture that was cancelled cannot begin: `prepare` the stream that `cancel` returns.

use dacapo::Prepared;
use dacapo::prelude::*;

fn stale(stream: Stream<Prepared>) -> dacapo::Result<()> {
    let _idle = stream.cancel();
    let _recording = stream.begin()?;
    Ok(())
}

fn main() {}
