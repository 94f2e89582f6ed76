//! Keep text on the host, and numbers on the device.

use dacapo::prelude::*;

struct Names {
    names: Vec<String>,
    scores: Buffer<f32>,
}

pub fn main() -> dacapo::Result<()> {
    let scores = Device::host()?.stream()?.alloc(1)?;
    let all = Names { names: vec!["chelsea".to_owned()], scores };
    assert_eq!(all.names.len(), all.scores.len());
    Ok(())
}
