//! A prepared stream executes, so its warm-up can be timed before the recording begins.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let mut x = stream.alloc::<f32>(4)?;
    let mut prepared = stream.prepare()?;
    let ((), _warm_up) = prepared.profile(|work| work.fill(&mut x, 1.0))?;
    let mut recording = prepared.begin()?;
    recording.fill(&mut x, 1.0)?;
    let _sealed = recording.end()?;
    Ok(())
}
