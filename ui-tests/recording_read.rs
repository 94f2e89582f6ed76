//! Nothing runs while a stream records, so the elements do not exist yet: end, replay the graph, then read.

use dacapo::prelude::*;
use dacapo::{Recording, Result};

fn read_now(stream: &mut Stream<Recording>, x: &Buffer<f32>) -> Result<Vec<f32>> {
    stream.read(x)
}

fn main() {}
