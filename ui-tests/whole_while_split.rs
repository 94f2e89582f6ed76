//! While its halves are lent, the whole buffer would alias them: use the halves first.

use dacapo::prelude::*;

fn overlap(s: &mut Stream, x: &mut Buffer<f32>) -> dacapo::Result<()> {
    let (left, right) = x.split_at_mut(2)?;
    s.fill(&mut *x, 0.0)?;
    s.copy(&left, right)
}

fn main() {}
