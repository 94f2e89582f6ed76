//! Text is bytes.

use dacapo::prelude::*;

pub fn main() {
    let _program = Program::<(Out<u8>,)>::new("say");
}
