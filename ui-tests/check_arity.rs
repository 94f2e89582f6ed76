//! A launch check takes the grid, and one tuple with an entry for each parameter.

use dacapo::prelude::*;

fn main() {
    let _program = Program::<(In<f32>, Out<f32>, u32)>::new("shift")
        .check(|_grid, (x, y)| if x == y { Ok(()) } else { Err("two lengths") });
}
