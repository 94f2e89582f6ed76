//! A recording inside a recording would need two windows on one stream: end the first, or record on another stream.

use dacapo::prelude::*;
use dacapo::{Recording, Result};

fn nested(stream: &mut Stream<Recording>, x: &mut Buffer<f32>) -> Result<(Graph, ())> {
    stream.record(|work| work.fill(x, 1.0))
}

fn main() {}
