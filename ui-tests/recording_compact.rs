//! Moves run, and nothing runs while a stream records: end or abort it first.

use dacapo::prelude::*;
use dacapo::{Compaction, Recording, Result};

fn compact(stream: &mut Stream<Recording>) -> Result<Compaction> {
    stream.compact()
}

fn main() {}
