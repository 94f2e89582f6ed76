//! Inside two nested recordings, each `Work` records on its own stream.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let device = Device::host()?;
    let (mut one, mut other) = (device.stream()?, device.stream()?);
    let (mut x, mut y) = (one.alloc::<f32>(4)?, one.alloc::<f32>(4)?);
    let (mut outer, (mut inner, ())) = one.record(|outer| {
        outer.fill(&mut x, 1.0)?;
        other.record(|inner| inner.fill(&mut y, 2.0))
    })?;
    outer.replay(&mut one)?;
    inner.replay(&mut one)?;
    assert_eq!((one.read(&x)?, one.read(&y)?), (vec![1.0; 4], vec![2.0; 4]));
    Ok(())
}
