//! Load the program for the stream's own device.

use dacapo::prelude::*;

fn run<B: Backend>(
    s: &mut impl Enqueue<B>,
    zero: &Program<(Out<f32>,)>,
    x: &mut Buffer<f32, B>,
) -> dacapo::Result<()> {
    let zero = zero.load(&s.device_handle())?;
    s.launch(&zero, Grid::covering(4), (&mut *x,))
}

pub fn main() -> dacapo::Result<()> {
    let mut stream = Device::host()?.stream()?;
    let mut x = stream.alloc(4)?;
    run(&mut stream, &Program::<(Out<f32>,)>::new("zero").host(|(x,), _| x.fill(0.0)), &mut x)
}
