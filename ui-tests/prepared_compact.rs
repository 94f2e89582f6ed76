//! Moving buffers would undo what the warm-up has just made ready: compact before `prepare`, or after the capture.

use dacapo::prelude::*;
use dacapo::{Compaction, Prepared, Result};

fn compact(stream: &mut Stream<Prepared>) -> Result<Compaction> {
    stream.compact()
}

fn main() {}
