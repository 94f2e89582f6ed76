//! `cast` says that the bytes are to be seen as another type.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let device = Device::host()?;
    let mut stream = device.stream()?;
    let double = Program::<(InOut<f32>,)>::new("double")
        .host(|(x,), _| x.iter_mut().for_each(|x| *x *= 2.0))
        .load(&device)?;
    let mut x = stream.alloc::<u32>(4)?;
    stream.launch(&double, Grid::covering(4), (x.as_slice_mut().cast::<f32>()?,))
}
