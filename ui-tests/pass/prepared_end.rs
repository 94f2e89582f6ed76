//! `begin` stands between `prepare` and `end`.

use dacapo::Prepared;
use dacapo::prelude::*;

fn end_in_order(stream: Stream<Prepared>) -> dacapo::Result<(Graph, Stream)> {
    Ok(stream.begin()?.end()?)
}

pub fn main() -> dacapo::Result<()> {
    let (graph, _stream) = end_in_order(Device::host()?.stream()?.prepare()?)?;
    assert_eq!(graph.nodes(), 0);
    Ok(())
}
