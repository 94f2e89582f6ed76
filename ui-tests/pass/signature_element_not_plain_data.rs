//! Text is bytes.

use dacapo::prelude::*;

fn main() {
    let _program = Program::<(Out<u8>,)>::new("say");
}
