//! As many arguments as parameters.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let device = Device::host()?;
    let mut stream = device.stream()?;
    let add = Program::<(In<f32>, Out<f32>, f32)>::new("add")
        .host(|(x, y, a), _| y.iter_mut().zip(x).for_each(|(y, x)| *y = x + a))
        .load(&device)?;
    let (x, mut y) = (stream.alloc(4)?, stream.alloc(4)?);
    stream.launch(&add, Grid::covering(4), (&x, &mut y, 1.0))?;
    assert_eq!(stream.read(&y)?, [1.0; 4]);
    Ok(())
}
