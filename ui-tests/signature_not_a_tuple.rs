//! A signature is a tuple, also of a single parameter: `(In<f32>,)`.

use dacapo::prelude::*;

fn main() {
    let _program = Program::<In<f32>>::new("look");
}
