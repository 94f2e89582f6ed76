//! A signature of one parameter is a tuple with a comma.

use dacapo::prelude::*;

pub fn main() {
    let _program = Program::<(In<f32>,)>::new("look");
}
