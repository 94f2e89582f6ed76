//! `cancel` leaves a capture that has recorded nothing; a recording is discarded by `abort`.

use dacapo::Recording;
use dacapo::prelude::*;

fn give_up(stream: Stream<Recording>) -> Stream {
    stream.cancel()
}

fn main() {}
