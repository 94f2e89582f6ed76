//! Ask for a backend that has raw sections, and on the host call the library in a kernel.

use dacapo::prelude::*;
use dacapo::{EnqueueRaw, HasRaw};

fn section<B: HasRaw>(s: &mut impl Enqueue<B>, x: &mut Buffer<f32, B>) -> dacapo::Result<()> {
    // SAFETY: it enqueues nothing.
    unsafe { s.raw((x,), |_queue, (_x,)| Ok(())) }
}

pub fn main() -> dacapo::Result<()> {
    let device = Device::host()?;
    let mut stream = device.stream()?;
    let mut x = stream.alloc::<f32>(4)?;
    let library = |x: &mut [f32]| x.fill(1.0);
    let call = Program::<(Out<f32>,)>::new("library").host(move |(x,), _| library(x)).load(&device)?;
    stream.launch(&call, Grid::covering(4), (&mut x,))?;
    assert_eq!(stream.read(&x)?, [1.0; 4]);
    Ok(())
}
