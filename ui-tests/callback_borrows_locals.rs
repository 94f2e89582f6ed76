//! A host callback is called later, and by a graph again and again: move what it uses into it.

use dacapo::prelude::*;

fn announce(s: &mut Stream, name: &str) -> dacapo::Result<()> {
    s.host_call(|| println!("{name} is ready"))
}

fn main() {}
