//! Borrow the buffers: for reading, for writing, and for overwriting.

use dacapo::prelude::*;
use dacapo::{EnqueueRaw, HasRaw, Overwrite, State};

fn section<B: HasRaw>(
    s: &mut impl Enqueue<B>,
    x: &Buffer<f32, B>,
    (y, z): (&mut Buffer<f32, B>, &mut Buffer<f32, B>),
    state: &State<B>,
) -> dacapo::Result<()> {
    let args = (x, &mut *y, Overwrite(z.slice_mut(..2)?), state);
    // SAFETY: it enqueues nothing.
    unsafe {
        s.raw(args, |_queue, (x, y, z, ())| {
            assert_eq!((x.len(), y.len(), z.len()), (4, 4, 2));
            Ok(())
        })
    }
}

pub fn main() {}
