//! `capture` opens a window of its own and warms up itself: call it on a stream in no capture.

use dacapo::prelude::*;
use dacapo::{Prepared, Result};

fn capture_inside(stream: &mut Stream<Prepared>, x: &mut Buffer<f32>) -> Result<(Graph, ())> {
    stream.capture(|work| work.fill(&mut *x, 1.0))
}

fn main() {}
