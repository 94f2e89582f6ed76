//! A recording has nothing in flight to wait for: end it, and wait for a replay.

use dacapo::prelude::*;
use dacapo::{Recording, Result};

fn wait(stream: &mut Stream<Recording>) -> Result<()> {
    stream.sync()
}

fn main() {}
