//! Phases are names of types and have no values: say `Stream<Recording>`, and get there by `begin`.

use dacapo::Recording;

fn main() {
    let _phase = Recording;
}
