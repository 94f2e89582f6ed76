//! A step returns this crate's error, since recording can fail by itself: carry your own with `Error::step`.

use dacapo::prelude::*;

fn parse(stream: &mut Stream, text: &str) -> dacapo::Result<(Graph, i32)> {
    stream.record(|_work| Ok(text.parse::<i32>()?))
}

fn main() {}
