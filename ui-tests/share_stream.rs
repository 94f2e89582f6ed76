//! A stream is driven by one thread at a time: move it there, or make one stream for each thread.

use dacapo::prelude::*;

fn on_a_thread(work: impl FnOnce() + Send) {
    work();
}

fn share(stream: &Stream) {
    on_a_thread(|| println!("{}", stream.id()));
}

fn main() {}
