//! The counts of the next launch are written to other memory than those of this one.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let device = Device::host()?;
    let mut stream = device.stream()?;
    let next = Program::<(InOut<u32>,)>::new("next").host(|(counts,), _| counts[0] += 1).load(&device)?;
    let (mut these, mut those) = (stream.alloc::<u32>(3)?, stream.alloc::<u32>(3)?);
    stream.fill(&mut these, 1u32)?;
    stream.launch(&next, Grid::indirect(&these), (&mut those,))?;
    assert_eq!(stream.read(&those)?, [1, 0, 0]);
    Ok(())
}
