//! An entry for each parameter.

use dacapo::prelude::*;

pub fn main() {
    let _program = Program::<(In<f32>, Out<f32>, u32)>::new("shift")
        .check(|_grid, (x, y, _by)| if x == y { Ok(()) } else { Err("two lengths") });
}
