//! A launch check is told how many elements a buffer has, and not what they are: those are still to be written.

use dacapo::prelude::*;

fn main() {
    let _program = Program::<(In<f32>, Out<f32>)>::new("divide")
        .check(|_grid, (x, _y)| if x.iter().all(|x| *x != 0.0) { Ok(()) } else { Err("a zero") });
}
