//! What a launch reads and writes is told by its arguments, so that only this crate's types are some: hand out a slice.

use dacapo::Arg;
use dacapo::prelude::*;

struct Image(Buffer<f32>);

impl Arg<In<f32>, Host> for &Image {}

fn main() {}
