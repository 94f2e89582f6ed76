//! Atomics may be changed from any thread.

use dacapo::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

pub fn main() {
    let calls = AtomicUsize::new(0);
    let _program = Program::<(In<f32>,)>::new("look").host_chunks(move |(_x,), _| {
        calls.fetch_add(1, Ordering::Relaxed);
    });
}
