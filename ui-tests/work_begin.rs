//! A lent stream has no transitions, else a closure could end the window that surrounds it: use a `Stream`.

use dacapo::prelude::*;

fn begin_inside(stream: &mut Stream) -> dacapo::Result<(Graph, ())> {
    stream.record(|work| {
        work.begin()?;
        Ok(())
    })
}

fn main() {}
