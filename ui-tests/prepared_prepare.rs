//! The window is open already: begin to record, or cancel.

use dacapo::prelude::*;
use dacapo::{Prepared, Result};

fn prepare_twice(stream: Stream<Prepared>) -> Result<Stream<Prepared>> {
    Ok(stream.prepare()?)
}

fn main() {}
