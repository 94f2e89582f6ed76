//! Host memory is written as it is: nothing is converted.

use dacapo::prelude::*;

fn upload(s: &mut Stream, to: &mut Buffer<f32>) -> dacapo::Result<()> {
    s.write(to, &[1u32, 2, 3, 4])
}

fn main() {}
