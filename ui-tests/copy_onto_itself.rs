//! A copy reads one buffer and writes another: the two may not share bytes.

use dacapo::prelude::*;

fn shift(s: &mut Stream, x: &mut Buffer<f32>) -> dacapo::Result<()> {
    s.copy(x.slice(..3)?, x.slice_mut(1..)?)
}

fn main() {}
