//! A host kernel outlives the function that made it: move what it uses into it.

use dacapo::prelude::*;

fn scale(factor: f32) -> Program<(InOut<f32>,)> {
    Program::<(InOut<f32>,)>::new("scale").host(|(x,), _| x.iter_mut().for_each(|x| *x *= factor))
}

fn main() {}
