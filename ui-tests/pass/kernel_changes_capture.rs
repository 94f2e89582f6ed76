//! What a kernel finds out is one of its outputs.

use dacapo::prelude::*;

pub fn main() {
    let _program =
        Program::<(In<f32>, Out<f32>)>::new("sum").host(|(x, sum), _| sum.fill(x.iter().sum::<f32>()));
}
