//! A `Work` that outlives its closure would record into a window that is closed: call inside, and move results out.

use dacapo::prelude::*;

fn leak(stream: &mut Stream) -> dacapo::Result<()> {
    let mut kept: Option<&mut Work<'_>> = None;
    let (_graph, ()) = stream.record(|work| {
        kept = Some(work);
        Ok(())
    })?;
    Ok(())
}

fn main() {}
