//! Go on with the stream that `end` returns.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let mut x = stream.alloc::<f32>(4)?;
    let stream = stream.prepare()?.begin()?;
    let (_graph, mut stream) = stream.end()?;
    stream.fill(&mut x, 1.0)
}
