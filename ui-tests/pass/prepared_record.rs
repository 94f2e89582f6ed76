//! `record` needs no `prepare`: it opens and closes its window itself.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let mut x = stream.alloc::<f32>(4)?;
    let (_graph, ()) = stream.record(|work| work.fill(&mut x, 1.0))?;
    Ok(())
}
