//! The callback owns what it uses.

use dacapo::prelude::*;

fn announce(s: &mut Stream, name: &str) -> dacapo::Result<()> {
    let name = name.to_owned();
    s.host_call(move || println!("{name} is ready"))
}

pub fn main() -> dacapo::Result<()> {
    announce(&mut Device::host()?.stream()?, "x")
}
