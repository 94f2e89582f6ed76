//! Code over every backend cannot know that a buffer of the host lives on its own: take `Buffer<f32, B>`.

use dacapo::prelude::*;

fn mixed<B: Backend>(
    s: &mut impl Enqueue<B>,
    zero: &Kernel<(Out<f32>,), B>,
    x: &mut Buffer<f32>,
) -> dacapo::Result<()> {
    s.launch(zero, Grid::covering(4), (&mut *x,))
}

fn main() {}
