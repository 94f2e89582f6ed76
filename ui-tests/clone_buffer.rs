//! A second handle of the same bytes would make `&mut` no proof of exclusive use: borrow a `Slice`, or copy the elements.

use dacapo::prelude::*;

fn twice(x: &Buffer<f32>) -> Buffer<f32> {
    x.clone()
}

fn main() {}
