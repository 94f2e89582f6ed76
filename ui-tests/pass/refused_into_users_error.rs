//! `?` turns a refused transition into the enum of an application, with or without the stream.

use dacapo::Refused;
use dacapo::prelude::*;

#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error("the device: {0}")]
    Device(#[from] dacapo::Error),
    #[error("no graph, and the stream is back: {0}")]
    NoGraph(#[from] Refused<Stream>),
}

fn refused(device: &Device) -> Result<Graph, AppError> {
    let mut recording = device.stream()?.prepare()?.begin()?;
    let _ = recording.alloc::<f32>(usize::MAX);
    let (graph, _stream) = recording.end()?;
    Ok(graph)
}

pub fn main() -> Result<(), AppError> {
    match refused(&Device::host()?) {
        Err(AppError::NoGraph(refused)) => refused.into_parts().0.prepare()?.cancel().sync()?,
        other => panic!("{other:?}"),
    }
    Ok(())
}
