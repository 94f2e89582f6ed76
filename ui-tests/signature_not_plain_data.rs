//! A scalar is copied to the device as bytes, so that it is plain data.

use dacapo::prelude::*;

fn main() {
    let _program = Program::<(Out<f32>, String)>::new("say");
}
