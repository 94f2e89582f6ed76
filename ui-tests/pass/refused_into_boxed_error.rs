//! `?` turns a refused transition into a boxed error that may cross threads.

use dacapo::prelude::*;
use std::error::Error;

fn refused(device: &Device) -> Result<Graph, Box<dyn Error + Send + Sync>> {
    let mut recording = device.stream()?.prepare()?.begin()?;
    let _ = recording.alloc::<f32>(usize::MAX);
    let (graph, _stream) = recording.end()?;
    Ok(graph)
}

pub fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    assert!(refused(&Device::host()?).unwrap_err().to_string().contains("larger than"));
    Ok(())
}
