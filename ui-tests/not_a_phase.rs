//! A stream has one of three phases; another type in their place is a mistake.

use dacapo::prelude::*;

fn drive(_: Stream<f32>) {}

fn main() {}
