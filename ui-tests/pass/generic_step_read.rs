//! A step that reads says so, and can then not be recorded.

use dacapo::CanWait;
use dacapo::prelude::*;

fn step<B: Backend>(s: &mut (impl Enqueue<B> + CanWait), x: &mut Buffer<f32, B>) -> dacapo::Result<Vec<f32>> {
    s.fill(&mut *x, 1.0)?;
    s.read(&*x)
}

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let mut x = stream.alloc::<f32>(4)?;
    assert_eq!(step(&mut stream, &mut x)?, [1.0; 4]);
    Ok(())
}
