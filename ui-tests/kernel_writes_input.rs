//! `In` promises that a launch only reads the buffer, and edges rest on it: declare an `InOut`.

use dacapo::prelude::*;

fn main() {
    let _program = Program::<(In<f32>,)>::new("double").host(|(x,), _| x.iter_mut().for_each(|x| *x *= 2.0));
}
