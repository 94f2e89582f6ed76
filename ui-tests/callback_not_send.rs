//! A host callback runs on the device's thread: what it captures is shared through `Arc`, not `Rc`.

use dacapo::prelude::*;
use std::rc::Rc;

fn announce(s: &mut Stream, name: Rc<String>) -> dacapo::Result<()> {
    s.host_call(move || println!("{name} is ready"))
}

fn main() {}
