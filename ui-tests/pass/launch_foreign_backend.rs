//! Stream, kernel and buffer are all of the backend `B`.

use dacapo::prelude::*;

fn alike<B: Backend>(
    s: &mut impl Enqueue<B>,
    zero: &Kernel<(Out<f32>,), B>,
    x: &mut Buffer<f32, B>,
) -> dacapo::Result<()> {
    s.launch(zero, Grid::covering(4), (&mut *x,))
}

pub fn main() -> dacapo::Result<()> {
    let device = Device::host()?;
    let mut stream = device.stream()?;
    let zero = Program::<(Out<f32>,)>::new("zero").host(|(x,), _| x.fill(0.0)).load(&device)?;
    let mut x = stream.alloc(4)?;
    alike(&mut stream, &zero, &mut x)
}
