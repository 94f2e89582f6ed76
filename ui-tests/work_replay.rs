//! A replay inside a recording would run before what was recorded ahead of it: `embed` the graph instead.

use dacapo::prelude::*;

fn replay_inside(stream: &mut Stream, inner: &mut Graph) -> dacapo::Result<(Graph, ())> {
    stream.record(|work| {
        inner.replay(work)?;
        Ok(())
    })
}

fn main() {}
