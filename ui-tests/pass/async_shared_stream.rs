//! A task may own its stream.

use dacapo::prelude::*;

fn spawn(_task: impl Future + Send) {}

async fn label(stream: Stream) -> String {
    std::future::ready(()).await;
    stream.id().to_string()
}

pub fn main() -> dacapo::Result<()> {
    spawn(label(Device::host()?.stream()?));
    Ok(())
}
