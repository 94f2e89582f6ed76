//! A raw section borrows its buffers: pass `&mut x`, and the buffer is still there to be read.

use dacapo::prelude::*;
use dacapo::{EnqueueRaw, HasRaw};

fn section<B: HasRaw>(s: &mut impl Enqueue<B>, x: Buffer<f32, B>) -> dacapo::Result<()> {
    // SAFETY: it enqueues nothing.
    unsafe { s.raw((x,), |_queue, (_x,)| Ok(())) }
}

fn main() {}
