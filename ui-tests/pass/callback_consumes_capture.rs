//! Each call gives away a clone.

use dacapo::prelude::*;
use std::sync::mpsc::{self, Sender};

fn deliver(s: &mut Stream, to: Sender<String>, text: String) -> dacapo::Result<()> {
    s.host_call(move || to.send(text.clone()).unwrap())
}

pub fn main() -> dacapo::Result<()> {
    let (to, delivered) = mpsc::channel();
    let mut stream = Device::host()?.stream()?;
    deliver(&mut stream, to, "x".to_owned())?;
    stream.sync()?;
    assert_eq!(delivered.recv().unwrap(), "x");
    Ok(())
}
