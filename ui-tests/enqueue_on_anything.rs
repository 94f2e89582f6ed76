//! Work is enqueued on a stream; a device makes one.

use dacapo::prelude::*;

fn step<B: Backend>(s: &mut impl Enqueue<B>) -> dacapo::Result<Buffer<f32, B>> {
    s.alloc(4)
}

fn main() -> dacapo::Result<()> {
    let mut device = Device::host()?;
    step::<Host>(&mut device)?;
    Ok(())
}
