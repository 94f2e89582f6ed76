//! An input is passed as `&`.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let device = Device::host()?;
    let mut stream = device.stream()?;
    let look = Program::<(In<f32>,)>::new("look").host(|(_x,), _| ()).load(&device)?;
    let x = stream.alloc(4)?;
    stream.launch(&look, Grid::covering(4), (&x,))
}
