//! A whole capture, transition by transition.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let (graph, _stream) = Device::host()?.stream()?.prepare()?.begin()?.end()?;
    assert_eq!(graph.nodes(), 0);
    Ok(())
}
