//! A graph made by hand would hold what was never recorded or checked: `record`, `capture` and `end` make graphs.

use dacapo::prelude::*;

fn main() {
    let _graph: Graph = Graph {};
}
