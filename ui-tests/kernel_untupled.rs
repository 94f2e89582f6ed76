//! A host kernel takes its views as one tuple, and the grid after it: `|(x, y), grid|`.

use dacapo::prelude::*;

fn main() {
    let _program = Program::<(In<f32>, Out<f32>)>::new("copy").host(|x, y, _grid| y.copy_from_slice(x));
}
