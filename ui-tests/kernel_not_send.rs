//! A host kernel runs on the device's threads: what it captures is shared through `Arc`, not `Rc`.

use dacapo::prelude::*;
use std::rc::Rc;

fn main() {
    let factor = Rc::new(2.0);
    let _program =
        Program::<(InOut<f32>,)>::new("scale").host(move |(x,), _| x.iter_mut().for_each(|x| *x *= *factor));
}
