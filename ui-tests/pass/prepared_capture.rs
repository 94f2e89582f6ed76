//! `capture` needs no `prepare`: it warms up, records, and closes its window itself.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let mut x = stream.alloc::<f32>(4)?;
    let (_graph, ()) = stream.capture(|work| work.fill(&mut x, 1.0))?;
    assert_eq!(stream.read(&x)?, [1.0; 4]);
    Ok(())
}
