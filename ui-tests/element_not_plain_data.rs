//! Elements are bytes on a device, where references and enums with gaps mean nothing: use plain data.

use dacapo::prelude::*;

fn booleans(s: &mut Stream) -> dacapo::Result<()> {
    let flags = s.alloc::<bool>(4)?;
    drop(flags);
    Ok(())
}

fn main() {}
