//! `?` turns a refused transition into `anyhow::Error`, which still tells its cause.

use anyhow::Context;
use dacapo::prelude::*;

fn refused(device: &Device) -> anyhow::Result<Graph> {
    let mut recording = device.stream()?.prepare()?.begin()?;
    let _ = recording.alloc::<f32>(usize::MAX);
    let (graph, _stream) = recording.end().context("sealing the frame")?;
    Ok(graph)
}

pub fn main() -> anyhow::Result<()> {
    let error = refused(&Device::host()?).unwrap_err();
    assert_eq!(error.to_string(), "sealing the frame");
    assert!(error.root_cause().to_string().contains("larger than"), "{error:?}");
    Ok(())
}
