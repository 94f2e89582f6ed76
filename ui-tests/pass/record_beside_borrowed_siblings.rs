//! `record` on a field borrows that field alone, so that the closure may use its siblings.

use dacapo::prelude::*;

struct Decoder {
    stream: Stream,
    add: Kernel<(In<f32>, Out<f32>, f32)>,
    input: Buffer<f32>,
    output: Buffer<f32>,
    step: Option<Graph>,
    bias: f32,
}

impl Decoder {
    fn new(device: &Device) -> dacapo::Result<Self> {
        let mut stream = device.stream()?;
        let add = Program::<(In<f32>, Out<f32>, f32)>::new("add")
            .host(|(x, y, a), _| y.iter_mut().zip(x).for_each(|(y, x)| *y = x + a))
            .load(device)?;
        let (input, output) = (stream.alloc(4)?, stream.alloc(4)?);
        Ok(Decoder { stream, add, input, output, step: None, bias: 1.5 })
    }

    fn record(&mut self) -> dacapo::Result<()> {
        let (graph, ()) = self.stream.record(|work| {
            work.launch(&self.add, Grid::covering(4), (&self.input, &mut self.output, self.bias))
        })?;
        self.step = Some(graph);
        Ok(())
    }

    fn decode(&mut self, input: &[f32]) -> dacapo::Result<Vec<f32>> {
        self.stream.write(&mut self.input, input)?;
        if let Some(step) = &mut self.step {
            step.replay(&mut self.stream)?;
        }
        self.stream.read(&self.output)
    }
}

pub fn main() -> dacapo::Result<()> {
    let mut decoder = Decoder::new(&Device::host()?)?;
    decoder.record()?;
    assert_eq!(decoder.decode(&[1.0; 4])?, [2.5; 4]);
    Ok(())
}
