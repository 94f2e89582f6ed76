//! What a phase permits is checked by these three types alone, so that nobody can add one.

use dacapo::Phase;

struct Paused;

impl Phase for Paused {}

fn main() {}
