//! A `Work` cannot be the result of its own closure: the window is closed when the closure returns.

use dacapo::prelude::*;

fn leak(stream: &mut Stream) -> dacapo::Result<()> {
    let (_graph, _work) = stream.record(|work| Ok(work))?;
    Ok(())
}

fn main() {}
