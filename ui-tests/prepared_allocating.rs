//! The warm-up must allocate as the recording will, which has no mode: choose one before `prepare`.

use dacapo::prelude::*;
use dacapo::{AllocationMode, Prepared, Result};

fn dedicated(stream: &mut Stream<Prepared>) -> Result<Buffer<f32>> {
    stream.allocating(AllocationMode::Dedicated, |work| work.alloc(4))
}

fn main() {}
