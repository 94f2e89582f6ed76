//! The order of work rests on what an `Enqueue` does, so that only this crate's streams are one: wrap one, and hand it out.

use dacapo::prelude::*;

struct Logged(Stream);

impl Enqueue<Host> for Logged {}

fn main() {}
