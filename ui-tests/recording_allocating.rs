//! Buffers of a recording are planned at its end, whatever the mode, so that setting one would do nothing.

use dacapo::prelude::*;
use dacapo::{AllocationMode, Recording, Result};

fn dedicated(stream: &mut Stream<Recording>) -> Result<Buffer<f32>> {
    stream.allocating(AllocationMode::Dedicated, |work| work.alloc(4))
}

fn main() {}
