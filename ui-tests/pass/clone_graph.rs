//! A second graph of the same work is a second recording.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let mut x = stream.alloc::<f32>(4)?;
    let (_one, ()) = stream.record(|work| work.fill(&mut x, 1.0))?;
    let (_other, ()) = stream.record(|work| work.fill(&mut x, 1.0))?;
    Ok(())
}
