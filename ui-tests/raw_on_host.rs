//! The host has no queue that another library could enqueue on: a raw section needs a backend that has one.

use dacapo::prelude::*;
use dacapo::EnqueueRaw;

fn section(s: &mut Stream, x: &mut Buffer<f32>) -> dacapo::Result<()> {
    // SAFETY: it enqueues nothing.
    unsafe { s.raw((x,), |_queue, (_x,)| Ok(())) }
}

fn main() {}
