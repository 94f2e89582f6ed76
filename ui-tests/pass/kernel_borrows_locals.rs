//! `move` gives the kernel what it uses.

use dacapo::prelude::*;

fn scale(factor: f32) -> Program<(InOut<f32>,)> {
    Program::<(InOut<f32>,)>::new("scale").host(move |(x,), _| x.iter_mut().for_each(|x| *x *= factor))
}

pub fn main() {
    let _program = scale(2.0);
}
