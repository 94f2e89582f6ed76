//! Move the stream to the thread that drives it.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    std::thread::spawn(move || stream.sync()).join().unwrap()
}
