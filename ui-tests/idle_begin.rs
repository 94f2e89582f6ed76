//! A recording begins in a window, which `prepare` opens.

use dacapo::prelude::*;
use dacapo::{Recording, Result};

fn begin_at_once(stream: Stream) -> Result<Stream<Recording>> {
    Ok(stream.begin()?)
}

fn main() {}
