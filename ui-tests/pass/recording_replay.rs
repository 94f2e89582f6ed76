//! `embed` makes a graph part of the one that is being recorded.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let mut x = stream.alloc::<f32>(4)?;
    let (mut inner, ()) = stream.record(|work| work.fill(&mut x, 2.0))?;
    let mut recording = stream.prepare()?.begin()?;
    recording.embed(&mut inner)?;
    let (mut outer, mut stream) = recording.end()?;
    outer.replay(&mut stream)?;
    assert_eq!(stream.read(&x)?, [2.0; 4]);
    Ok(())
}
