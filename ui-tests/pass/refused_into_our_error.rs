//! `?` turns a refused transition into this crate's error.

use dacapo::prelude::*;
use dacapo::{Error, ErrorKind};

fn whole(device: &Device) -> Result<Graph, Error> {
    let (graph, _stream) = device.stream()?.prepare()?.begin()?.end()?;
    Ok(graph)
}

fn refused(device: &Device) -> Result<Graph, Error> {
    let mut recording = device.stream()?.prepare()?.begin()?;
    let too_big = recording.alloc::<f32>(usize::MAX);
    assert!(too_big.is_err());
    let (graph, _stream) = recording.end()?;
    Ok(graph)
}

pub fn main() -> Result<(), Error> {
    let device = Device::host()?;
    assert_eq!(whole(&device)?.nodes(), 0);
    assert_eq!(refused(&device).unwrap_err().kind(), ErrorKind::Exhausted);
    Ok(())
}
