//! Allocate in a mode first, and prepare then.

use dacapo::AllocationMode;
use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let mut x = stream.allocating(AllocationMode::Dedicated, |work| work.alloc::<f32>(4))?;
    let mut prepared = stream.prepare()?;
    prepared.fill(&mut x, 1.0)?;
    prepared.cancel().sync()
}
