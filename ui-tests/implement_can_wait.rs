//! Whether a stream may wait follows from its phase; nobody can claim it for a type of their own.

use dacapo::CanWait;

struct Mine;

impl CanWait for Mine {}

fn main() {}
