//! Recording takes no device time that could be measured: profile the warm-up, or a replay.

use dacapo::prelude::*;
use dacapo::{Profile, Recording, Result};

fn time(stream: &mut Stream<Recording>, x: &mut Buffer<f32>) -> Result<Profile> {
    let ((), profile) = stream.profile(|work| work.fill(x, 1.0))?;
    Ok(profile)
}

fn main() {}
