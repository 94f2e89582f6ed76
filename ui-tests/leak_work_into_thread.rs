//! A thread that is not joined would record into a window that is closed: give it a stream of its own.

use dacapo::prelude::*;

fn detached(_task: impl FnOnce() + Send + 'static) {}

fn leak(stream: &mut Stream) -> dacapo::Result<(Graph, ())> {
    stream.record(|work| {
        detached(move || {
            let _ = work.alloc::<f32>(4);
        });
        Ok(())
    })
}

fn main() {}
