//! `split_at_mut` gives two outputs that share no byte.

use dacapo::prelude::*;

pub fn main() -> dacapo::Result<()> {
    let device = Device::host()?;
    let mut stream = device.stream()?;
    let zero = Program::<(Out<f32>, Out<f32>)>::new("zero")
        .host(|(x, y), _| {
            x.fill(0.0);
            y.fill(0.0);
        })
        .load(&device)?;
    let mut x = stream.alloc(8)?;
    let (left, right) = x.split_at_mut(4)?;
    stream.launch(&zero, Grid::covering(4), (left, right))
}
