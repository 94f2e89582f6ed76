//! Code over every backend takes it as a parameter.

use dacapo::prelude::*;

fn zeros<B: Backend>(device: &Device<B>) -> dacapo::Result<Buffer<f32, B>> {
    device.stream()?.alloc(4)
}

pub fn main() -> dacapo::Result<()> {
    assert_eq!(zeros(&Device::host()?)?.len(), 4);
    Ok(())
}
