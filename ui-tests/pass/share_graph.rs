//! A lock makes of a graph something that threads may share.

use dacapo::prelude::*;
use std::sync::Mutex;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let (graph, ()) = stream.record(|_work| Ok(()))?;
    let graph = Mutex::new(graph);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(graph.lock().unwrap().nodes(), 0));
        scope.spawn(|| assert_eq!(graph.lock().unwrap().nodes(), 0));
    });
    Ok(())
}
