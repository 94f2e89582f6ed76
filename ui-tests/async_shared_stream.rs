//! A task that holds `&Stream` while it awaits cannot move between threads: hold the stream itself, or `&mut`.

use dacapo::prelude::*;

fn spawn(_task: impl Future + Send) {}

async fn label(stream: &Stream) -> String {
    std::future::ready(()).await;
    stream.id().to_string()
}

fn share(stream: &Stream) {
    spawn(label(stream));
}

fn main() {}
