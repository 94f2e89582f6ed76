//! A type that owns a stream lends it to the steps.

use dacapo::prelude::*;

struct Logged(Stream);

impl Logged {
    fn stream(&mut self) -> &mut impl Enqueue<Host> {
        &mut self.0
    }
}

pub fn main() -> dacapo::Result<()> {
    let mut logged = Logged(Device::host()?.stream()?);
    logged.stream().alloc::<f32>(4)?;
    Ok(())
}
