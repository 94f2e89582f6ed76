//! What a replay costs a node, and what the order of the data gains over the order of the queue.
//!
//! **Measured.** Replays of a chain of 1,000 launches that each add one to a number, waited for one by one and sixteen at
//! a time, against the same closure called as often through `dyn`; the target is 100 ns a node. Then real work: eight
//! independent chains, recorded in the order of the data and `Sequential`; the target is a gain of 1.7 on two cores, which
//! is a ratio of 0.59. The **control** is one chain of as much work, where the gain must vanish. Results are compared with a plain computation.
//!
//! **How it can mislead.** A replay that is waited for one by one includes waking the worker and the waiter, some
//! microseconds that 1,000 nodes share and ten would not. The gain needs two cores that nobody else uses: on a busy or
//! single core it shrinks to nothing, also where the library is right. The real work is bound by the latency of one
//! dependent operation after the other, so that two hyperthreads of one core count as two; work that fills the
//! core's units would gain nothing there, and work that fills the memory's bandwidth nowhere.

mod support;

use std::hint::black_box;

use dacapo::prelude::*;
use dacapo::{CaptureOptions, Order, Result};
use support::{Cost, Table, timed};

const NODES: u64 = 1000;

/// What stands for a kernel where there is no device.
type Call = dyn Fn(&mut [u64]);

fn add_one(numbers: &mut [u64]) {
    if let [number] = numbers {
        *number = number.wrapping_add(1);
    }
}

/// A chain of nodes that do nearly nothing.
struct Chain {
    stream: Stream,
    graph: Graph,
    x: Buffer<u64>,
    replays: u64,
}

impl Chain {
    fn new() -> Result<Self> {
        let device = Device::host()?;
        let mut stream = device.stream()?;
        let add = Program::<(InOut<u64>,)>::new("add_one").host(|(x,), _| add_one(x)).load(&device)?;
        let mut x = stream.alloc::<u64>(1)?;
        let (graph, ()) = stream
            .record(|work| (0..NODES).try_for_each(|_| work.launch(&add, Grid::covering(1), (&mut x,))))?;
        assert_eq!((graph.nodes() as u64, graph.edges() as u64), (NODES, NODES - 1));
        Ok(Chain { stream, graph, x, replays: 0 })
    }

    fn run(&mut self, iterations: u64, together: u64) -> Cost {
        let took = timed(iterations, || {
            (1..together).for_each(|_| drop(self.graph.replay(&mut self.stream).unwrap()));
            self.graph.replay(&mut self.stream).unwrap().wait().unwrap();
        });
        self.replays += iterations * together;
        assert_eq!(self.stream.read(&self.x).unwrap(), [self.replays * NODES]);
        took
    }
}

fn nodes(criterion: &mut criterion::Criterion) -> Result<()> {
    let calls: Vec<Box<Call>> = (0..NODES).map(|_| Box::new(add_one) as _).collect();
    let (mut called, mut number) = (0, [0]);
    let (mut one, mut many) = (Chain::new()?, Chain::new()?);
    let mut table = Table::new("replay of a chain of 1,000 empty nodes", "node");
    table.row("plain calls through dyn", NODES, |iterations| {
        let took =
            timed(iterations, || calls.iter().for_each(|call| black_box(call)(black_box(&mut number))));
        called += iterations * NODES;
        assert_eq!(number, [called]);
        took
    });
    table.row("replay, each waited for", NODES, |iterations| one.run(iterations, 1));
    table.row("sixteen replays, the last waited for", 16 * NODES, |iterations| many.run(iterations, 16));
    table.run(criterion);
    Ok(())
}

const CHAINS: usize = 8;
const LINKS: usize = 16;
const FLOATS: usize = 2048;

/// Real work, some tens of microseconds within one core's cache: a recursive filter, forth and back.
fn smooth(x: &mut [f32]) {
    let mut last = 0.0f32;
    let mut filter = |x: &mut f32| {
        last = last * 0.75 + *x * 0.25;
        *x = last;
    };
    for _ in 0..2 {
        x.iter_mut().for_each(&mut filter);
        x.iter_mut().rev().for_each(&mut filter);
    }
}

/// Which chains there are: many that do not know each other, or one of as many nodes.
#[derive(Clone, Copy)]
enum Width {
    Eight,
    One,
}

/// A graph of real work, and what it must come to.
struct Real {
    stream: Stream,
    graph: Graph,
    data: Vec<Buffer<f32>>,
    width: Width,
    verified: bool,
}

impl Real {
    fn new(width: Width, order: Order) -> Result<Self> {
        let device = Device::host()?;
        let mut stream = device.stream()?;
        let smooth = Program::<(InOut<f32>,)>::new("smooth").host(|(x,), _| smooth(x)).load(&device)?;
        let mut data = (0..CHAINS).map(|_| stream.alloc::<f32>(FLOATS)).collect::<Result<Vec<_>>>()?;
        let options = CaptureOptions::default().order(order);
        let (graph, ()) = stream.record_with(options, |work| {
            // Link by link, as a program that treats eight pictures at a time records them.
            (0..LINKS * CHAINS).try_for_each(|n| {
                let chain = match width {
                    Width::Eight => n % CHAINS,
                    Width::One => 0,
                };
                work.launch(&smooth, Grid::covering(FLOATS), (&mut data[chain],))
            })
        })?;
        let edges = match (order, width) {
            (Order::DataFlow, Width::Eight) => CHAINS * (LINKS - 1),
            _ => CHAINS * LINKS - 1,
        };
        assert_eq!((graph.nodes(), graph.edges()), (CHAINS * LINKS, edges));
        Ok(Real { stream, graph, data, width, verified: false })
    }

    fn run(&mut self, iterations: u64) -> Cost {
        if !self.verified {
            self.verify().unwrap();
        }
        timed(iterations, || self.graph.replay(&mut self.stream).unwrap().wait().unwrap())
    }

    fn verify(&mut self) -> Result<()> {
        let start: Vec<f32> = (0..FLOATS).map(|n| n as f32 / FLOATS as f32).collect();
        self.data.iter_mut().try_for_each(|x| self.stream.write(x, &start))?;
        self.graph.replay(&mut self.stream)?;
        for (n, x) in self.data.iter().enumerate() {
            let links = match self.width {
                Width::Eight => LINKS,
                Width::One if n == 0 => LINKS * CHAINS,
                Width::One => 0,
            };
            let mut expected = start.clone();
            (0..links).for_each(|_| smooth(&mut expected));
            assert_eq!(self.stream.read(x)?, expected);
        }
        self.verified = true;
        Ok(())
    }
}

fn orders(criterion: &mut criterion::Criterion) -> Result<()> {
    const WORK: u64 = (CHAINS * LINKS) as u64;
    let widths = [(Width::Eight, "eight chains"), (Width::One, "control, one chain")];
    for (width, name) in widths {
        let mut sequential = Real::new(width, Order::Sequential)?;
        let mut data_flow = Real::new(width, Order::DataFlow)?;
        let mut table = Table::new(name, "node");
        table.row("in the order of the queue (Sequential)", WORK, |iterations| sequential.run(iterations));
        table.row("in the order of the data", WORK, |iterations| data_flow.run(iterations));
        table.run(criterion);
    }
    Ok(())
}

fn main() -> Result<()> {
    let mut criterion = support::criterion();
    nodes(&mut criterion)?;
    orders(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}
