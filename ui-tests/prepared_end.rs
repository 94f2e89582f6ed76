//! Nothing was recorded, so there is no graph to be had: begin first, or cancel.

use dacapo::prelude::*;
use dacapo::{Prepared, Result};

fn end_early(stream: Stream<Prepared>) -> Result<(Graph, Stream)> {
    Ok(stream.end()?)
}

fn main() {}
