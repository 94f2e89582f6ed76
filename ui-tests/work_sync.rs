//! Inside `record` nothing runs, so there is nothing to wait for: leave the closure first.

use dacapo::prelude::*;

fn wait_inside(stream: &mut Stream) -> dacapo::Result<(Graph, ())> {
    stream.record(|work| work.sync())
}

fn main() {}
