//! A graph calls its callbacks once a replay, so that one cannot give away what it owns: lend it, or clone it.

use dacapo::prelude::*;
use std::sync::mpsc::Sender;

fn deliver(s: &mut Stream, to: Sender<String>, text: String) -> dacapo::Result<()> {
    s.host_call(move || to.send(text).unwrap())
}

fn main() {}
