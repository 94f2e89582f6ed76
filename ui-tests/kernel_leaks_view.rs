//! A kernel's views are device memory that is its own for one call only: copy out what is to be kept.

use dacapo::prelude::*;
use std::sync::Mutex;

static KEPT: Mutex<&[f32]> = Mutex::new(&[]);

fn main() {
    let _program = Program::<(In<f32>,)>::new("look").host(|(x,), _| *KEPT.lock().unwrap() = x);
}
