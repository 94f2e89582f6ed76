//! A stream made by hand would be in a phase that it never entered: a device makes streams.

use dacapo::Recording;
use dacapo::prelude::*;

fn forge() -> Stream<Recording> {
    Stream {}
}

fn main() {}
