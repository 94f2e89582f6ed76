//! Go on with the stream that `begin` returns.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let mut x = stream.alloc::<f32>(4)?;
    let stream = stream.prepare()?;
    let mut stream = stream.begin()?;
    stream.fill(&mut x, 1.0)?;
    let _sealed = stream.end()?;
    Ok(())
}
