//! A cleanup would give back what the warm-up has just made ready: clean up before `prepare`, or after the capture.

use dacapo::prelude::*;
use dacapo::{Prepared, Result};

fn clean(stream: &mut Stream<Prepared>) -> Result<()> {
    stream.memory_cleanup()
}

fn main() {}
