//! Inside `record` nothing runs, so the elements do not exist yet: return from the closure, replay, then read.

use dacapo::prelude::*;

fn read_inside(stream: &mut Stream, x: &mut Buffer<f32>) -> dacapo::Result<(Graph, Vec<f32>)> {
    stream.record(|work| {
        work.fill(&mut *x, 1.0)?;
        work.read(&*x)
    })
}

fn main() {}
