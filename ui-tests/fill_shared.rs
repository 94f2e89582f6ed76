//! A fill needs the buffer for itself: pass `&mut`.

use dacapo::prelude::*;

fn clear(s: &mut Stream, to: &Buffer<f32>) -> dacapo::Result<()> {
    s.fill(to, 0.0)
}

fn main() {}
