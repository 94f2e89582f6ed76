//! `record` opens a window of its own: begin the one that is open, or cancel it first.

use dacapo::prelude::*;
use dacapo::{Prepared, Result};

fn record_inside(stream: &mut Stream<Prepared>, x: &mut Buffer<f32>) -> Result<(Graph, ())> {
    stream.record(|work| work.fill(x, 1.0))
}

fn main() {}
