//! Borrow the buffer, and read it after that.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let device = Device::host()?;
    let mut stream = device.stream()?;
    let zero = Program::<(Out<f32>,)>::new("zero").host(|(x,), _| x.fill(0.0)).load(&device)?;
    let mut x = stream.alloc(4)?;
    stream.launch(&zero, Grid::covering(4), (&mut x,))?;
    assert_eq!(stream.read(&x)?, [0.0; 4]);
    Ok(())
}
