//! Return what the caller needs of it.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let (_graph, id) = stream.record(|work| Ok(work.stream_id()))?;
    assert_eq!(id, stream.id());
    Ok(())
}
