//! Allocate in the mode that you want before the capture, and let the recording use the buffer.

use dacapo::AllocationMode;
use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let mut x = stream.allocating(AllocationMode::Dedicated, |work| work.alloc::<f32>(4))?;
    let mut recording = stream.prepare()?.begin()?;
    recording.fill(&mut x, 1.0)?;
    let _sealed = recording.end()?;
    Ok(())
}
