//! There is no capture to cancel: use the stream as it is.

use dacapo::prelude::*;

fn give_up(stream: Stream) -> Stream {
    stream.cancel()
}

fn main() {}
