//! The table as host memory, and the buffer as an `In`.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let device = Device::host()?;
    let mut stream = device.stream()?;
    let look = Program::<(Uniform<f32>, In<f32>)>::new("look").host(|(_table, _x), _| ()).load(&device)?;
    let x = stream.alloc::<f32>(4)?;
    let table = vec![1.0; 4];
    stream.launch(&look, Grid::covering(4), (&table, &x))?;
    stream.launch(&look, Grid::covering(4), (&[1.0; 4], &x))?;
    stream.launch(&look, Grid::covering(4), (&table[1..], &x))
}
