//! A thread with a stream of its own records whatever and whenever it likes.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    std::thread::spawn(move || stream.record(|work| work.alloc::<f32>(4)).map(drop)).join().unwrap()
}
