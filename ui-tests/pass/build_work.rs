//! A step takes `impl Enqueue<B>`, and so is called with a stream as well as with a `Work`.

use dacapo::prelude::*;

fn step<B: Backend>(s: &mut impl Enqueue<B>, x: &mut Buffer<f32, B>) -> dacapo::Result<()> {
    s.fill(x, 1.0)
}

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let mut x = stream.alloc(4)?;
    step(&mut stream, &mut x)?;
    let _recorded = stream.record(|work| step(work, &mut x))?;
    Ok(())
}
