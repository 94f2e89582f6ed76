//! Code over every phase takes it as a parameter.

use dacapo::prelude::*;
use dacapo::{Phase, PhaseName};

fn describe<P: Phase>(stream: &Stream<P>) -> PhaseName {
    stream.phase()
}

pub fn main() -> dacapo::Result<()> {
    assert_eq!(describe(&Device::host()?.stream()?), PhaseName::NoCapture);
    Ok(())
}
