//! One step, over every backend, runs eagerly, as a warm-up, as a recording, and on a stream of any phase.

use dacapo::prelude::*;
use dacapo::{AnyStream, Result};

struct Model<B: Backend> {
    add: Kernel<(InOut<f32>, f32), B>,
    x: Buffer<f32, B>,
}

impl<B: Backend> Model<B> {
    fn step(&mut self, s: &mut impl Enqueue<B>) -> Result<()> {
        let mut t = s.alloc_scratch::<f32>(self.x.len())?;
        s.copy(&self.x, &mut t)?;
        s.launch(&self.add, Grid::covering(t.len()), (&mut t, 1.0))?;
        s.copy(&t, &mut self.x)
    }
}

fn run<B: Backend>(device: &Device<B>, add: &Program<(InOut<f32>, f32)>) -> Result<Vec<f32>> {
    let mut stream = device.stream()?;
    let mut model = Model { add: add.load(device)?, x: stream.alloc(4)? };
    model.step(&mut stream)?;
    let (mut captured, ()) = stream.capture(|work| model.step(work))?;
    let (mut recorded, ()) = stream.record(|work| model.step(work))?;
    let mut recording = stream.prepare()?.begin()?;
    model.step(&mut recording)?;
    let (mut ended, stream) = recording.end()?;
    let mut any = AnyStream::from(stream);
    model.step(&mut any)?;
    for graph in [&mut captured, &mut recorded, &mut ended] {
        graph.replay(&mut any)?;
    }
    any.read(&model.x)
}

pub fn main() -> Result<()> {
    let add = Program::<(InOut<f32>, f32)>::new("add").host(|(x, a), _| x.iter_mut().for_each(|x| *x += a));
    assert_eq!(run(&Device::host()?, &add)?, [6.0; 4]);
    Ok(())
}
