//! A host kernel may be called from several threads at once: what it counts is an atomic, not a `Cell`.

use dacapo::prelude::*;
use std::cell::Cell;

fn main() {
    let calls = Cell::new(0);
    let _program = Program::<(In<f32>,)>::new("look").host_chunks(move |(_x,), _| calls.set(calls.get() + 1));
}
