//! Do the work inside, and go on with the stream outside.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let (x, _profile) = stream.profile(|work| work.alloc::<f32>(4))?;
    assert_eq!(stream.read(&x)?, [0.0; 4]);
    Ok(())
}
