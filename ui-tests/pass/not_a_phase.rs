//! The three phases, and the one that need not be written.

use dacapo::prelude::*;
use dacapo::{NoCapture, Prepared, Recording};

fn idle(_: Option<Stream>, _: Option<Stream<NoCapture>>) {}
fn open(_: Option<Stream<Prepared>>, _: Option<Stream<Recording>>) {}

pub fn main() {
    idle(None, None);
    open(None, None);
}
