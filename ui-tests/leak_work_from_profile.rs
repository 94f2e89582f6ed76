//! What `profile` lends ends with the closure as well, else its work would escape the measurement.

use dacapo::prelude::*;

fn leak(stream: &mut Stream) -> dacapo::Result<()> {
    let mut kept: Option<&mut Work<'_>> = None;
    let ((), _profile) = stream.profile(|work| {
        kept = Some(work);
        Ok(())
    })?;
    Ok(())
}

fn main() {}
