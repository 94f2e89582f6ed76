//! `Arc` may go to any thread.

use dacapo::prelude::*;
use std::sync::Arc;

fn announce(s: &mut Stream, name: Arc<String>) -> dacapo::Result<()> {
    s.host_call(move || println!("{name} is ready"))
}

pub fn main() -> dacapo::Result<()> {
    announce(&mut Device::host()?.stream()?, Arc::new("x".to_owned()))
}
