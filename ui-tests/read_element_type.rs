//! A read gives the elements of the buffer: nothing is converted.

use dacapo::prelude::*;

fn download(s: &mut Stream, x: &Buffer<f32>) -> dacapo::Result<Vec<u32>> {
    s.read(x)
}

fn main() {}
