//! Two handles of one stream could be in two phases: make a second stream from the device.

use dacapo::prelude::*;

fn twice(stream: &Stream) -> Stream {
    stream.clone()
}

fn main() {}
