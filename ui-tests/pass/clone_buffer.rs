//! Copy the elements to a buffer of their own.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let x = stream.alloc::<f32>(4)?;
    let mut copy = stream.alloc_scratch::<f32>(x.len())?;
    stream.copy(&x, &mut copy)?;
    assert_eq!(stream.read(&copy)?, [0.0; 4]);
    Ok(())
}
