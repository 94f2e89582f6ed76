//! `Error::step` carries the user's own error, and `step_as` gives it back.

use dacapo::Error;
use dacapo::prelude::*;
use std::num::ParseIntError;

fn parse(stream: &mut Stream, text: &str) -> dacapo::Result<(Graph, i32)> {
    stream.record(|_work| text.parse::<i32>().map_err(Error::step))
}

pub fn main() -> dacapo::Result<()> {
    let error = parse(&mut Device::host()?.stream()?, "x").unwrap_err();
    assert!(error.step_as::<ParseIntError>().is_some());
    Ok(())
}
