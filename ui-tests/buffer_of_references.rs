//! The type of a buffer's elements is plain data wherever it is named, in a field too.

use dacapo::prelude::*;

struct Names {
    names: Buffer<String>,
}

fn main() {}
