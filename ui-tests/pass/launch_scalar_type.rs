//! Write the scalar as what the signature says.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let device = Device::host()?;
    let mut stream = device.stream()?;
    let fill = Program::<(Out<f32>, f32)>::new("fill").host(|(x, a), _| x.fill(a)).load(&device)?;
    let mut x = stream.alloc(4)?;
    stream.launch(&fill, Grid::covering(4), (&mut x, 1.0f32))
}
