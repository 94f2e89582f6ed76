//! What streams promise beyond the order of their work: captures that run a closure, refused transitions, waits, futures,
//! where memory comes from, and windows that wander between threads.

#[path = "streams/captures.rs"]
mod captures;
#[path = "streams/futures.rs"]
mod futures;
#[path = "streams/memory.rs"]
mod memory;
#[path = "streams/refused.rs"]
mod refused;
mod support;
#[path = "streams/waits.rs"]
mod waits;
#[path = "streams/windows.rs"]
mod windows;

use dacapo::prelude::*;

use crate::support::{Kernels, all, filled, grid};

/// The stream is in no capture, and a whole capture works on it.
pub fn assert_usable(stream: &mut Stream, k: &Kernels) {
    let status = stream.device().captures();
    assert!(!status.is_capturing(stream.id()));
    let x = filled(stream, 4.0);
    let mut y = filled(stream, 0.0);
    let (mut graph, ()) = stream.capture(|work| work.launch(&k.add1, grid(), (&x, &mut y))).unwrap();
    assert_eq!(graph.nodes(), 1);
    stream.fill(&mut y, 0.0).unwrap();
    graph.replay(stream).unwrap();
    assert!(all(&stream.read(&y).unwrap(), 5.0));
    assert!(!status.is_capturing(stream.id()));
}
