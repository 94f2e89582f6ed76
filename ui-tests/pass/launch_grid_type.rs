//! A grid says what its number counts.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let device = Device::host()?;
    let mut stream = device.stream()?;
    let double = Program::<(InOut<f32>,)>::new("double")
        .host(|(x,), _| x.iter_mut().for_each(|x| *x *= 2.0))
        .load(&device)?;
    let mut x = stream.alloc(4)?;
    stream.launch(&double, Grid::covering(4), (&mut x,))
}
