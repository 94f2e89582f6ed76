//! One view for each parameter.

use dacapo::prelude::*;

pub fn main() {
    let _program = Program::<(In<f32>, Out<f32>)>::new("copy").host(|(x, y), _| y.copy_from_slice(x));
}
