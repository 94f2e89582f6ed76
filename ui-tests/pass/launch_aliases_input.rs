//! What is read and written in place is an `InOut`.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let device = Device::host()?;
    let mut stream = device.stream()?;
    let add = Program::<(InOut<f32>,)>::new("add")
        .host(|(x,), _| x.iter_mut().for_each(|x| *x += 1.0))
        .load(&device)?;
    let mut x = stream.alloc(4)?;
    stream.launch(&add, Grid::covering(4), (&mut x,))
}
