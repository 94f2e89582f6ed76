//! The library's side: the same chains, launch by launch and as a graph.

use dacapo::prelude::*;
use dacapo::wgpu::{Wgpu, WgpuOptions};
use dacapo::{DeviceOptions, Error};

use crate::chain::NEXT;
use crate::gpu::Gpu;
use crate::measure::Side;

type Next = Kernel<(In<f32>, Out<f32>), Wgpu>;

/// The library on devices that it opened itself.
pub struct Library {
    /// With the usual options. The hand-written side is on this one too.
    usual: Device<Wgpu>,
    /// Where every launch makes a bind group.
    uncached: Device<Wgpu>,
}

/// A chain from one buffer to another and back.
pub struct Ours {
    stream: Stream<NoCapture, Wgpu>,
    next: Next,
    places: [Buffer<f32, Wgpu>; 2],
    nodes: u32,
    graph: Option<Graph<Wgpu>>,
    end: fn(&mut Ours) -> Result<(), Error>,
    runs: u32,
}

impl Library {
    pub fn new() -> Result<Self, Error> {
        let open = |options| Device::open(DeviceOptions::new().backend(options));
        Ok(Library { usual: open(WgpuOptions::new())?, uncached: open(WgpuOptions::new().bind_groups(0))? })
    }

    /// The device of wgpu's below, for the hand-written side.
    pub fn gpu(&self) -> Gpu {
        Gpu::new(self.usual.wgpu_device().clone(), self.usual.wgpu_queue().clone())
    }

    /// Launches, with kept bind groups.
    pub fn launches(&self, nodes: u32, floats: u64) -> Ours {
        Ours::new(&self.usual, nodes, floats).unwrap()
    }

    /// Launches that each make a bind group.
    pub fn uncached(&self, nodes: u32, floats: u64) -> Ours {
        Ours::new(&self.uncached, nodes, floats).unwrap()
    }

    /// Replays of a graph.
    pub fn replays(&self, nodes: u32, floats: u64) -> Ours {
        let mut ours = self.launches(nodes, floats);
        ours.graph = Some(ours.record());
        ours
    }
}

impl Ours {
    fn new(device: &Device<Wgpu>, nodes: u32, floats: u64) -> Result<Self, Error> {
        let mut stream = device.stream()?;
        let next = Program::<(In<f32>, Out<f32>)>::new("next").wgsl(NEXT, "next").load(device)?;
        let places = [stream.alloc(floats as usize)?, stream.alloc(floats as usize)?];
        stream.sync()?;
        let end = |ours: &mut Ours| ours.stream.sync();
        Ok(Ours { stream, next, places, nodes, graph: None, end, runs: 0 })
    }

    /// The result is read at the end of each run.
    pub fn reading(mut self) -> Self {
        self.end = |ours| ours.stream.read(&ours.places[0]).map(drop);
        self
    }

    pub fn record(&mut self) -> Graph<Wgpu> {
        let Ours { stream, next, places, nodes, .. } = self;
        stream.record(|work| chain(work, next, places, *nodes)).unwrap().0
    }
}

fn chain(
    work: &mut impl Enqueue<Wgpu>,
    next: &Next,
    [x, y]: &mut [Buffer<f32, Wgpu>; 2],
    nodes: u32,
) -> Result<(), Error> {
    let grid = Grid::covering(x.len());
    (0..nodes).try_for_each(|node| match node % 2 {
        0 => work.launch(next, grid, (&*x, &mut *y)),
        _ => work.launch(next, grid, (&*y, &mut *x)),
    })
}

impl Side for Ours {
    fn enqueue(&mut self) {
        let Ours { stream, next, places, nodes, graph, .. } = self;
        match graph {
            Some(graph) => drop(graph.replay(stream).unwrap()),
            None => chain(stream, next, places, *nodes).unwrap(),
        }
        self.runs += 1;
    }

    fn wait(&mut self) {
        (self.end)(self).unwrap();
    }

    fn verify(&mut self) {
        let sum = (self.nodes * self.runs) as f32;
        let numbers = self.stream.read(&self.places[0]).unwrap();
        assert!(numbers.iter().all(|number| *number == sum), "{} for {sum}", numbers[0]);
    }
}

/// Recordings, each of which is dropped again.
pub struct Records(pub Ours);

impl Side for Records {
    fn enqueue(&mut self) {
        self.0.graph = Some(self.0.record());
    }

    fn wait(&mut self) {
        self.0.graph = None;
    }

    fn verify(&mut self) {
        let mut recorded = self.0.record();
        assert_eq!(recorded.nodes(), self.0.nodes as usize);
        drop(recorded.replay(&mut self.0.stream).unwrap());
        self.0.runs += 1;
        self.0.verify();
    }
}
