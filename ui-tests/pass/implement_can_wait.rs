//! Code that waits asks for `CanWait`, and gets a stream that executes.

use dacapo::CanWait;
use dacapo::prelude::*;

fn finish<B: Backend>(stream: &mut (impl Enqueue<B> + CanWait)) -> dacapo::Result<()> {
    stream.sync()
}

pub fn main() -> dacapo::Result<()> {
    finish(&mut Device::host()?.stream()?)
}
