//! A write needs the buffer for itself: pass `&mut`.

use dacapo::prelude::*;

fn upload(s: &mut Stream, to: &Buffer<f32>) -> dacapo::Result<()> {
    s.write(to, &[1.0; 4])
}

fn main() {}
