//! A step is given a stream.

use dacapo::prelude::*;

fn step<B: Backend>(s: &mut impl Enqueue<B>) -> dacapo::Result<Buffer<f32, B>> {
    s.alloc(4)
}

pub fn main() -> dacapo::Result<()> {
    let device = Device::host()?;
    step(&mut device.stream()?)?;
    Ok(())
}
