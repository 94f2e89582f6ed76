//! A kernel is loaded for one backend, and a stream of another cannot launch it: load it for the stream's device.

use dacapo::prelude::*;

fn mixed<B: Backend>(
    s: &mut impl Enqueue<B>,
    zero: &Kernel<(Out<f32>,)>,
    x: &mut Buffer<f32, B>,
) -> dacapo::Result<()> {
    s.launch(zero, Grid::covering(4), (&mut *x,))
}

fn main() {}
