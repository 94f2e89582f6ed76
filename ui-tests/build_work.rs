//! A `Work` made by hand would enqueue on a stream that somebody else holds: `record`, `capture` and `profile` lend one.

use dacapo::prelude::*;

fn forge<'s>() -> Work<'s> {
    Work {}
}

fn main() {}
