//! The safety of a replay rests on what a backend does, so that only this crate can supply one.

use dacapo::Backend;

struct Mine;

impl Backend for Mine {}

fn main() {}
