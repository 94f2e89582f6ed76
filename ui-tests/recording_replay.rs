//! A replay would run before what was recorded ahead of it: end the recording first, or make the graph part of it with
//! `embed`.

use dacapo::prelude::*;
use dacapo::{Recording, Result};

fn replay_inside(graph: &mut Graph, stream: &mut Stream<Recording>) -> Result<()> {
    graph.replay(stream)?;
    Ok(())
}

fn main() {}
