//! A step over `impl Enqueue<B>` may be recorded, and then it has nothing to read: return the buffer and let the caller
//! read it, or ask for `impl Enqueue<B> + CanWait`.

use dacapo::prelude::*;

fn step<B: Backend>(s: &mut impl Enqueue<B>, x: &mut Buffer<f32, B>) -> dacapo::Result<Vec<f32>> {
    s.fill(&mut *x, 1.0)?;
    s.read(&*x)
}

fn main() {}
