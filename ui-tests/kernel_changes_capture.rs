//! Calls of one kernel may run at the same time, so that it cannot change what it captures: use an output, or an atomic.

use dacapo::prelude::*;

fn main() {
    let mut seen = Vec::new();
    let _program = Program::<(In<f32>,)>::new("look").host(move |(x,), _| seen.push(x.len()));
}
