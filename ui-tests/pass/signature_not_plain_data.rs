//! Scalars are numbers, or plain data made of them.

use dacapo::prelude::*;

pub fn main() {
    let _program = Program::<(Out<f32>, [u32; 2])>::new("say");
}
