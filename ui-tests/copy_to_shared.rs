//! A copy writes its destination, so that a shared reference does not do: pass `&mut`.

use dacapo::prelude::*;

fn overwrite(s: &mut Stream, from: &Buffer<f32>, to: &Buffer<f32>) -> dacapo::Result<()> {
    s.copy(from, to)
}

fn main() {}
