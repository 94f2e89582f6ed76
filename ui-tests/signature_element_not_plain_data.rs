//! A buffer parameter has elements that are plain data.

use dacapo::prelude::*;

fn main() {
    let _program = Program::<(Out<String>,)>::new("say");
}
