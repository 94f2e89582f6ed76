//! A graph is replayed by one thread at a time: move it there, or put it behind a lock.

use dacapo::prelude::*;

fn on_a_thread(work: impl FnOnce() + Send) {
    work();
}

fn share(graph: &Graph) {
    on_a_thread(|| println!("{}", graph.nodes()));
}

fn main() {}
