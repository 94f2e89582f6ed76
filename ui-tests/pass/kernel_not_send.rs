//! `Arc` may go to any thread.

use dacapo::prelude::*;
use std::sync::Arc;

pub fn main() {
    let factor = Arc::new(2.0);
    let _program =
        Program::<(InOut<f32>,)>::new("scale").host(move |(x,), _| x.iter_mut().for_each(|x| *x *= *factor));
}
