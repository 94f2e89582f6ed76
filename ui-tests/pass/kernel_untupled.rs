//! The tuple of views, and the grid.

use dacapo::prelude::*;

pub fn main() {
    let _program = Program::<(In<f32>, Out<f32>)>::new("copy").host(|(x, y), _grid| y.copy_from_slice(x));
}
