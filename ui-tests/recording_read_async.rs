//! A read that is awaited later would still be a read of a recording that has not run: end and replay first.

use dacapo::prelude::*;
use dacapo::{ReadFuture, Recording, Result};

fn read_later(stream: &mut Stream<Recording>, x: &Buffer<f32>) -> Result<ReadFuture<f32>> {
    stream.read_async(x)
}

fn main() {}
