//! A swap would record the steps of one stream on the other: name the `Work` that a step is for.

use dacapo::prelude::*;

fn nested(one: &mut Stream, other: &mut Stream) -> dacapo::Result<()> {
    let _graphs = one.record(|outer| {
        other.record(|inner| {
            std::mem::swap(outer, inner);
            Ok(())
        })
    })?;
    Ok(())
}

fn main() {}
