//! It has begun already: go on recording, and end it once.

use dacapo::prelude::*;
use dacapo::{Recording, Result};

fn begin_twice(stream: Stream<Recording>) -> Result<Stream<Recording>> {
    Ok(stream.begin()?)
}

fn main() {}
