//! `write` brings host memory to the device.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let device = Device::host()?;
    let mut stream = device.stream()?;
    let look = Program::<(In<f32>,)>::new("look").host(|(_x,), _| ()).load(&device)?;
    let mut x = stream.alloc_scratch(4)?;
    stream.write(&mut x, &[1.0; 4])?;
    stream.launch(&look, Grid::covering(4), (&x,))
}
