//! A launch passes one argument for each parameter of the signature.

use dacapo::prelude::*;

fn too_few(s: &mut Stream, add: &Kernel<(In<f32>, Out<f32>, f32)>, x: &Buffer<f32>, y: &mut Buffer<f32>) {
    s.launch(add, Grid::covering(4), (x, &mut *y)).unwrap();
}

fn main() {}
