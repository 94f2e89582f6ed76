//! A copy may be kept.

use dacapo::prelude::*;
use std::sync::Mutex;

static KEPT: Mutex<Vec<f32>> = Mutex::new(Vec::new());

pub fn main() {
    let _program = Program::<(In<f32>,)>::new("look").host(|(x,), _| *KEPT.lock().unwrap() = x.to_vec());
}
