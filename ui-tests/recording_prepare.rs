//! A stream has one window at a time: end or abort this one before the next is prepared.

use dacapo::prelude::*;
use dacapo::{Prepared, Recording, Result};

fn prepare_again(stream: Stream<Recording>) -> Result<Stream<Prepared>> {
    Ok(stream.prepare()?)
}

fn main() {}
