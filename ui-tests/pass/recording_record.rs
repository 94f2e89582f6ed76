//! Another stream of the device may record meanwhile, and its graph be embedded.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let device = Device::host()?;
    let (mut stream, mut other) = (device.stream()?, device.stream()?);
    let mut x = stream.alloc::<f32>(4)?;
    let mut recording = stream.prepare()?.begin()?;
    let (mut inner, ()) = other.record(|work| work.fill(&mut x, 1.0))?;
    recording.embed(&mut inner)?;
    let _sealed = recording.end()?;
    Ok(())
}
