//! There is no recording to discard yet: a prepared stream leaves by `cancel`.

use dacapo::Prepared;
use dacapo::prelude::*;

fn give_up(stream: Stream<Prepared>) -> Stream {
    stream.abort()
}

fn main() {}
