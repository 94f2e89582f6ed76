//! What recording costs a node, and what `end` costs a node as recordings grow.
//!
//! **Measured.** Recording: launches in a window, 1,000 a window, without `prepare`, `begin` and `end`; the base is
//! pushing a boxed closure onto a vector. `end`: recordings of 100 to 100,000 nodes of three shapes, from the call to the
//! graph; that the cost is near linear shows in rows of one shape that stay near each other. Shapes: a chain over one
//! buffer; eight chains that join at the end; and a pipeline in which each node writes a buffer born in the recording,
//! which the planner must place. The first graph of each row of `end` is replayed, and its results are verified.
//!
//! **How it can mislead.** The window's room is warm: a stream's first recording allocates, later ones of that size do
//! not. At 100,000 nodes the lists are so large that the allocator maps fresh memory for each of them, and page faults
//! double the cost of a node. That is the allocator's, not the algorithm's: told to keep its memory, it gives level rows
//! (glibc: `MALLOC_MMAP_THRESHOLD_`, `MALLOC_TRIM_THRESHOLD_` and `MALLOC_TOP_PAD_`, all large). Dropping a graph is not
//! counted.

mod support;

use dacapo::prelude::*;
use dacapo::{Recording, Result};
use support::{Cost, Table, cost, is_smoke, timed};

const WINDOW: u64 = 1000;

struct Kernels {
    add: Kernel<(InOut<u64>,)>,
    next: Kernel<(In<u64>, Out<u64>)>,
    sum: Kernel<(In<u64>, InOut<u64>)>,
}

impl Kernels {
    fn new(device: &Device) -> Result<Self> {
        let add = Program::new("add").host(|(x,): (&mut [u64],), _| x.iter_mut().for_each(|x| *x += 1));
        let next = Program::new("next")
            .host(|(x, y): (&[u64], &mut [u64]), _| y.iter_mut().zip(x).for_each(|(y, x)| *y = x + 1));
        let sum = Program::new("sum")
            .host(|(x, y): (&[u64], &mut [u64]), _| y.iter_mut().zip(x).for_each(|(y, x)| *y += x));
        Ok(Kernels { add: add.load(device)?, next: next.load(device)?, sum: sum.load(device)? })
    }
}

/// What is recorded: how many nodes there are to be, and how many edges.
#[derive(Clone, Copy)]
enum Shape {
    Chain,
    EightChains,
    Pipeline,
}

impl Shape {
    const ALL: [(Shape, &'static str); 3] =
        [(Shape::Chain, "chain"), (Shape::EightChains, "eight chains"), (Shape::Pipeline, "pipeline")];
}

/// A device to record on, and the buffers that are there before.
struct Bench {
    device: Device,
    kernels: Kernels,
    outside: Vec<Buffer<u64>>,
    out: Buffer<u64>,
}

impl Bench {
    fn new() -> Result<Self> {
        let device = Device::host()?;
        let kernels = Kernels::new(&device)?;
        let mut stream = device.stream()?;
        let outside = (0..8).map(|_| stream.alloc(1)).collect::<Result<_>>()?;
        let out = stream.alloc(1)?;
        stream.sync()?;
        Ok(Bench { device, kernels, outside, out })
    }

    /// Records exactly `nodes` nodes.
    fn record(&mut self, stream: &mut Stream<Recording>, shape: Shape, nodes: usize) -> Result<()> {
        let (grid, Kernels { add, next, sum }) = (Grid::covering(1), &self.kernels);
        match shape {
            Shape::Chain => (0..nodes).try_for_each(|_| stream.launch(add, grid, (&mut self.outside[0],))),
            Shape::EightChains => {
                (0..nodes - 8).try_for_each(|n| stream.launch(add, grid, (&mut self.outside[n % 8],)))?;
                self.outside.iter().try_for_each(|x| stream.launch(sum, grid, (x, &mut self.out)))
            }
            Shape::Pipeline => {
                let mut last = stream.alloc::<u64>(1)?;
                stream.launch(next, grid, (&self.outside[0], &mut last))?;
                for _ in 2..nodes {
                    let mut new = stream.alloc::<u64>(1)?;
                    stream.launch(next, grid, (&last, &mut new))?;
                    last = new;
                }
                stream.launch(sum, grid, (&last, &mut self.out))
            }
        }
    }

    /// Whether the graph does what was recorded.
    fn verify(&mut self, graph: &mut Graph, shape: Shape, nodes: usize) -> Result<()> {
        assert_eq!(graph.nodes(), nodes);
        let mut stream = self.device.stream()?;
        let mut values: Vec<u64> = self.outside.iter().map(|_| 0).collect();
        self.outside.iter_mut().try_for_each(|x| stream.fill(x, 0u64))?;
        stream.fill(&mut self.out, 0u64)?;
        graph.replay(&mut stream)?.wait()?;
        let expected = match shape {
            Shape::Chain => {
                values[0] = nodes as u64;
                0
            }
            Shape::EightChains => {
                (0..nodes - 8).for_each(|n| values[n % 8] += 1);
                nodes as u64 - 8
            }
            Shape::Pipeline => nodes as u64 - 1,
        };
        assert_eq!(stream.read(&self.out)?, [expected]);
        for (x, value) in self.outside.iter().zip(values) {
            assert_eq!(stream.read(x)?, [value]);
        }
        Ok(())
    }
}

fn recording(criterion: &mut criterion::Criterion) -> Result<()> {
    let mut table = Table::new("record", "node");
    table.row("push of a boxed closure", WINDOW, |iterations| {
        let mut list: Vec<Box<dyn Fn() -> u64>> = Vec::with_capacity(WINDOW as usize);
        let mut took = Cost::default();
        for _ in 0..iterations {
            list.clear();
            let mut n = 0;
            took += timed(WINDOW, || {
                n += 1;
                let value = n;
                list.push(Box::new(move || value));
            });
            assert_eq!(list.last().map(|call| call()), Some(WINDOW));
        }
        took
    });
    for (shape, name) in Shape::ALL {
        let mut bench = Bench::new()?;
        let mut stream = Some(bench.device.stream()?);
        table.row(format!("record, {name}"), WINDOW, move |iterations| {
            let mut took = Cost::default();
            for _ in 0..iterations {
                let mut recording = stream.take().unwrap().prepare().unwrap().begin().unwrap();
                let (outcome, spent) = cost(|| bench.record(&mut recording, shape, WINDOW as usize));
                outcome.unwrap();
                took += spent;
                let (graph, idle) = recording.end().unwrap();
                assert_eq!(graph.nodes(), WINDOW as usize);
                stream = Some(idle);
            }
            took
        });
    }
    table.run(criterion);
    Ok(())
}

fn ending(criterion: &mut criterion::Criterion) -> Result<()> {
    let sizes: &[usize] = if is_smoke() { &[100, 1_000] } else { &[100, 1_000, 10_000, 100_000] };
    for (shape, title) in Shape::ALL.map(|(shape, name)| (shape, format!("end, {name}"))) {
        let mut table = Table::new(title, "node");
        for nodes in sizes.iter().copied() {
            let mut bench = Bench::new()?;
            let mut stream = Some(bench.device.stream()?);
            let mut verified = false;
            table.row(format!("{nodes} nodes"), nodes as u64, move |iterations| {
                let mut took = Cost::default();
                for _ in 0..iterations {
                    let mut recording = stream.take().unwrap().prepare().unwrap().begin().unwrap();
                    bench.record(&mut recording, shape, nodes).unwrap();
                    let (ended, spent) = cost(|| recording.end());
                    let (mut graph, idle) = ended.unwrap();
                    took += spent;
                    if !verified {
                        bench.verify(&mut graph, shape, nodes).unwrap();
                        verified = true;
                    }
                    stream = Some(idle);
                }
                took
            });
        }
        table.run(criterion);
    }
    Ok(())
}

fn main() -> Result<()> {
    let mut criterion = support::criterion();
    recording(&mut criterion)?;
    ending(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}
