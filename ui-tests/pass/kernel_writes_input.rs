//! What a kernel changes is an `InOut`.

use dacapo::prelude::*;

pub fn main() {
    let _program =
        Program::<(InOut<f32>,)>::new("double").host(|(x,), _| x.iter_mut().for_each(|x| *x *= 2.0));
}
