//! A host kernel takes one tuple with as many views as its signature has parameters.

use dacapo::prelude::*;

fn main() {
    let _program = Program::<(In<f32>, Out<f32>)>::new("copy").host(|(x, y, n), _| y.copy_from_slice(x));
}
