//! Nothing was begun, so there is nothing to end: prepare, begin, record, and end then.

use dacapo::prelude::*;

fn end_nothing(stream: Stream) -> dacapo::Result<(Graph, Stream)> {
    Ok(stream.end()?)
}

fn main() {}
