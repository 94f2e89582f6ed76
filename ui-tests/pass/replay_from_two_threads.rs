//! Behind a lock the threads take turns, each on its own stream; the replays are ordered one after the other.

use dacapo::prelude::*;
use std::sync::Mutex;

pub fn main() -> dacapo::Result<()> {
    let device = Device::host()?;
    let (mut one, mut other) = (device.stream()?, device.stream()?);
    let mut x = one.alloc::<f32>(4)?;
    let (graph, ()) = one.record(|work| work.fill(&mut x, 1.0))?;
    let graph = Mutex::new(graph);
    std::thread::scope(|scope| {
        scope.spawn(|| graph.lock().unwrap().replay(&mut one).unwrap().wait());
        scope.spawn(|| graph.lock().unwrap().replay(&mut other).unwrap().wait());
    });
    assert_eq!(one.read(&x)?, [1.0; 4]);
    Ok(())
}
