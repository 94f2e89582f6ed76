//! `embed` makes one graph part of another.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let mut x = stream.alloc::<f32>(4)?;
    let (mut inner, ()) = stream.record(|work| work.fill(&mut x, 1.0))?;
    let (mut outer, ()) = stream.record(|work| work.embed(&mut inner))?;
    outer.replay(&mut stream)?;
    assert_eq!(stream.read(&x)?, [1.0; 4]);
    Ok(())
}
