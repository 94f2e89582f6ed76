//! The rules of what waits for what, each by itself, on a device that runs one operation at a time when told to. The
//! conformance suite has those that a stream which is held up can show.
//!
//! `stepper.step(stream)` is the proof: it returns `false` as long as what comes next on that stream's slot waits for
//! something that has not run, and `true` when it ran.

#[path = "ordering/arenas.rs"]
mod arenas;
#[path = "ordering/graphs.rs"]
mod graphs;
mod support;
#[path = "ordering/uses.rs"]
mod uses;

use dacapo::host::Stepper;
use dacapo::prelude::*;

/// Elements of a small buffer.
pub const N: usize = 64;

/// Everything on one slot has run, so that what follows finds nothing to wait for.
pub fn settle(stepper: &Stepper) {
    stepper.run_all();
}

/// A buffer of [`N`] elements that all hold `value`, already on the device.
pub fn ready(stream: &mut Stream, stepper: &Stepper, value: f32) -> Buffer<f32> {
    let mut buffer = stream.alloc_scratch(N).unwrap();
    stream.fill(&mut buffer, value).unwrap();
    settle(stepper);
    buffer
}
