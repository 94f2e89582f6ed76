//! Random programs over tables, against a model that knows nothing of caches: an output holds the last table that was
//! written to it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestRunner};

use super::super::super::property::cases;
use super::subject::Pace;
use super::support::*;
use super::{N, Spread, launch, repeated, spread};

const OUTS: usize = 6;
const STREAMS: usize = 3;

/// One line of a program. Streams, outputs, tables and graphs are given by number, taken modulo how many there are.
#[derive(Clone, Debug)]
enum Line {
    Launch {
        stream: usize,
        table: u16,
        out: usize,
    },
    /// Many launches with tables of their own, so that older ones leave.
    Flood {
        stream: usize,
        from: u16,
    },
    /// A window, warmed up with the first half of its launches or not at all.
    Record {
        stream: usize,
        launches: Vec<(u16, usize)>,
        warm: bool,
    },
    /// A window that never becomes a graph.
    Abandon {
        stream: usize,
        launches: Vec<(u16, usize)>,
        prepared_only: bool,
    },
    Replay {
        stream: usize,
        graph: usize,
    },
    Embed {
        stream: usize,
        graph: usize,
        table: u16,
        out: usize,
    },
    DropGraph {
        graph: usize,
    },
    Cleanup {
        stream: usize,
    },
    Step {
        stream: usize,
        times: usize,
    },
    Read {
        stream: usize,
        out: usize,
    },
}

fn line() -> impl Strategy<Value = Line> {
    let (stream, out, table, graph) = (0..STREAMS, 0..OUTS, 0..400u16, 0..8usize);
    let launches = vec((table.clone(), out.clone()), 1..8);
    prop_oneof![
        6 => (stream.clone(), table.clone(), out.clone())
            .prop_map(|(stream, table, out)| Line::Launch { stream, table, out }),
        1 => (stream.clone(), 1000..60_000u16).prop_map(|(stream, from)| Line::Flood { stream, from }),
        3 => (stream.clone(), launches.clone(), any::<bool>())
            .prop_map(|(stream, launches, warm)| Line::Record { stream, launches, warm }),
        2 => (stream.clone(), launches, any::<bool>())
            .prop_map(|(stream, launches, prepared_only)| Line::Abandon { stream, launches, prepared_only }),
        4 => (stream.clone(), graph.clone()).prop_map(|(stream, graph)| Line::Replay { stream, graph }),
        1 => (stream.clone(), graph.clone(), table, out.clone())
            .prop_map(|(stream, graph, table, out)| Line::Embed { stream, graph, table, out }),
        1 => graph.prop_map(|graph| Line::DropGraph { graph }),
        1 => stream.clone().prop_map(|stream| Line::Cleanup { stream }),
        3 => (stream.clone(), 1..6usize).prop_map(|(stream, times)| Line::Step { stream, times }),
        4 => (stream, out).prop_map(|(stream, out)| Line::Read { stream, out }),
    ]
}

impl Line {
    /// Whether it waits for the device, or has a driver do what may wait for it.
    fn waits(&self) -> bool {
        !matches!(
            self,
            Line::Launch { .. } | Line::Replay { .. } | Line::DropGraph { .. } | Line::Step { .. }
        )
    }
}

/// The table with this number: of any size from none to more than the usual cache takes.
fn contents(number: u16) -> Vec<u32> {
    let len = match number % 8 {
        0 => 0,
        1 => 1500,
        n => usize::from(n) * 3,
    };
    (0..len as u32).map(|at| u32::from(number) * 10_000 + at).collect()
}

type Expected = [Vec<u32>; OUTS];

struct Machine<'d> {
    device: &'d Device,
    pace: &'d mut Pace,
    k: &'d Spread,
    streams: Vec<Option<Stream>>,
    outs: Vec<Buffer<u32>>,
    graphs: Vec<(Graph, Vec<(u16, usize)>)>,
    expected: Expected,
    read: usize,
}

impl<'d> Machine<'d> {
    fn new(device: &'d Device, pace: &'d mut Pace, k: &'d Spread) -> Self {
        let mut streams: Vec<_> = (0..STREAMS).map(|_| Some(device.stream().unwrap())).collect();
        let first = streams[0].as_mut().unwrap();
        let outs = (0..OUTS).map(|_| first.alloc(N).unwrap()).collect();
        let (graphs, expected) = (Vec::new(), std::array::from_fn(|_| vec![0; N]));
        Machine { k, device, pace, streams, outs, graphs, expected, read: 0 }
    }

    fn run(&mut self, line: &Line) {
        if line.waits() {
            self.pace.before_a_wait();
        }
        match line {
            Line::Launch { stream, table, out } => {
                launch(
                    self.streams[*stream].as_mut().unwrap(),
                    self.k,
                    &contents(*table),
                    &mut self.outs[*out],
                );
                self.expect(&[(*table, *out)]);
            }
            Line::Flood { stream, from } => {
                let stream = self.streams[*stream].as_mut().unwrap();
                let mut scratch = stream.alloc_scratch::<u32>(N).unwrap();
                (0..150).for_each(|n| launch(stream, self.k, &contents(from + n), &mut scratch));
                assert_eq!(stream.read(&scratch).unwrap(), repeated(&contents(from + 149)));
            }
            Line::Record { stream, launches, warm } => {
                let prepared =
                    self.prepare(*stream, if *warm { &launches[..launches.len() / 2] } else { &[] });
                let mut recording = prepared.begin().unwrap();
                launches.iter().for_each(|(table, out)| {
                    launch(&mut recording, self.k, &contents(*table), &mut self.outs[*out])
                });
                let (graph, idle) = recording.end().unwrap();
                self.graphs.push((graph, launches.clone()));
                self.streams[*stream] = Some(idle);
            }
            Line::Abandon { stream, launches, prepared_only } => {
                let prepared = self.prepare(*stream, launches);
                let idle = if *prepared_only {
                    prepared.cancel()
                } else {
                    let mut recording = prepared.begin().unwrap();
                    launches.iter().rev().for_each(|(table, out)| {
                        launch(&mut recording, self.k, &contents(table + 7), &mut self.outs[*out]);
                    });
                    recording.abort()
                };
                self.streams[*stream] = Some(idle);
            }
            Line::Replay { stream, graph } => {
                let Some(at) = self.graph(*graph) else { return };
                let (graph, launches) = &mut self.graphs[at];
                graph.replay(self.streams[*stream].as_mut().unwrap()).unwrap();
                let launches = launches.clone();
                self.expect(&launches);
            }
            Line::Embed { stream, graph, table, out } => {
                let Some(at) = self.graph(*graph) else { return };
                let (child, launches) = &mut self.graphs[at];
                let (k, target) = (self.k, &mut self.outs[*out]);
                let (parent, ()) = self.streams[*stream]
                    .as_mut()
                    .unwrap()
                    .record(|work| {
                        launch(work, k, &contents(*table), target);
                        work.embed(child)
                    })
                    .unwrap();
                let launches = [&[(*table, *out)][..], launches].concat();
                self.graphs.push((parent, launches));
            }
            Line::DropGraph { graph } => {
                if let Some(at) = self.graph(*graph) {
                    drop(self.graphs.swap_remove(at));
                }
            }
            Line::Cleanup { stream } => self.streams[*stream].as_mut().unwrap().memory_cleanup().unwrap(),
            Line::Step { stream, times } => {
                self.pace.get_on(self.streams[*stream].as_mut().unwrap(), *times);
            }
            Line::Read { stream, out } => self.check(*stream, *out),
        }
    }

    fn graph(&self, number: usize) -> Option<usize> {
        number.checked_rem(self.graphs.len())
    }

    fn prepare(&mut self, stream: usize, launches: &[(u16, usize)]) -> Stream<Prepared> {
        let mut prepared = self.streams[stream].take().unwrap().prepare().unwrap();
        for (table, out) in launches {
            launch(&mut prepared, self.k, &contents(*table), &mut self.outs[*out]);
        }
        self.expect(launches);
        prepared
    }

    fn expect(&mut self, launches: &[(u16, usize)]) {
        for (table, out) in launches {
            self.expected[*out] = repeated(&contents(*table));
        }
    }

    fn check(&mut self, stream: usize, out: usize) {
        let found = self.streams[stream].as_mut().unwrap().read(&self.outs[out]).unwrap();
        assert_eq!(found, self.expected[out], "output {out}");
        self.read += 1;
    }

    /// Everything is as the model says, and nothing is left of it.
    fn finish(mut self) -> usize {
        self.pace.before_a_wait();
        (0..OUTS).for_each(|out| self.check(0, out));
        self.graphs.clear();
        self.outs.clear();
        self.pace.run_all();
        let stream = self.streams[0].as_mut().unwrap();
        Baseline::take(stream);
        assert_eq!(self.device.memory_usage().in_use, 0);
        self.read
    }
}

/// Any table that is mixed up, stale, uploaded too late, given away too early or kept for ever.
#[test]
fn random_programs_see_the_tables_that_they_brought() {
    let cases = cases(300);
    let config = Config {
        cases,
        rng_seed: RngSeed::Fixed(1),
        rng_algorithm: RngAlgorithm::XorShift,
        failure_persistence: None,
        ..Config::default()
    };
    let Some((device, pace)) = subject::paced(DeviceOptions::new().max_streams(2)) else { return };
    let (k, pace, read) = (spread(&device), RefCell::new(pace), AtomicUsize::new(0));
    TestRunner::new(config)
        .run(&vec(line(), 1..60), |lines| {
            // What waits for a gate takes long: nobody looks for a shorter program that does.
            if is_overdue() {
                return Ok(());
            }
            let mut pace = pace.borrow_mut();
            let mut machine = Machine::new(&device, &mut pace, &k);
            lines.iter().for_each(|line| machine.run(line));
            read.fetch_add(machine.finish(), Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
    assert!(read.into_inner() >= 3 * cases as usize, "hardly anything was compared");
}
