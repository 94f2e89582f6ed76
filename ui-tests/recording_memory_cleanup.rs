//! A cleanup would give back memory that the recording has only named so far: end or abort it first.

use dacapo::prelude::*;
use dacapo::{Recording, Result};

fn clean(stream: &mut Stream<Recording>) -> Result<()> {
    stream.memory_cleanup()
}

fn main() {}
