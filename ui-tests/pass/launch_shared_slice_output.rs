//! A part of a buffer is written through `slice_mut`.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let device = Device::host()?;
    let mut stream = device.stream()?;
    let zero = Program::<(Out<f32>,)>::new("zero").host(|(x,), _| x.fill(0.0)).load(&device)?;
    let mut x = stream.alloc(4)?;
    stream.launch(&zero, Grid::covering(2), (x.slice_mut(..2)?,))
}
