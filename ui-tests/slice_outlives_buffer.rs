//! A slice is a part of a buffer that somebody else owns: return the buffer, or cut it with `split_off`.

use dacapo::Slice;
use dacapo::prelude::*;

fn first_half(s: &mut Stream) -> dacapo::Result<Slice<'static, f32>> {
    let x = s.alloc::<f32>(4)?;
    x.slice(..2)
}

fn main() {}
