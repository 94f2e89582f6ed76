//! `record` makes a graph, an empty one too.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let (graph, ()) = Device::host()?.stream()?.record(|_work| Ok(()))?;
    assert_eq!(graph.nodes(), 0);
    Ok(())
}
