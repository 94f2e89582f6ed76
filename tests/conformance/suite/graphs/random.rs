//! Random recordings: however their memory is planned and their nodes are ordered, they compute what running the same
//! calls one after the other computes.

use dacapo::Order;
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof};
use proptest::test_runner::TestRunner;

use super::super::property::cases;
use super::support::{
    Buffer, CaptureOptions, Device, DeviceOptions, Enqueue, Grid, Len, Subject, Work, open, subject,
};
use super::zoo::{self, Loaded};

/// Elements of every buffer; enough bytes for several units of alignment.
const LEN: usize = 150;
/// Buffers from outside: the program reads and writes them.
const OUTSIDE: usize = 3;
/// Places for buffers that the program makes itself.
const PLACES: usize = 5;
const REPLAYS: u32 = 2;

/// One call. Buffers go by number: those from outside first, then the places; an empty place is filled by need.
#[derive(Clone, Debug)]
enum Call {
    Alloc {
        place: usize,
        scratch: bool,
    },
    Drop {
        place: usize,
    },
    /// `to = from * 3 + 1`, all of it or a range.
    Map {
        from: usize,
        to: usize,
        range: (usize, usize),
    },
    /// `to += from`.
    Add {
        from: usize,
        to: usize,
    },
    Fill {
        to: usize,
        range: (usize, usize),
        value: u32,
    },
    Write {
        to: usize,
        range: (usize, usize),
        value: u32,
    },
    Copy {
        from: usize,
        to: usize,
        at: (usize, usize),
        len: usize,
    },
    Barrier,
}

fn call() -> impl Strategy<Value = Call> {
    let place = 0..PLACES;
    let buffer = || 0..OUTSIDE + PLACES;
    let range = || {
        let part = (0..LEN, 0..LEN).prop_map(|(a, b)| (a.min(b), a.max(b) + 1));
        prop_oneof![1 => Just((0, LEN)), 1 => part]
    };
    prop_oneof![
        3 => (place.clone(), any::<bool>()).prop_map(|(place, scratch)| Call::Alloc { place, scratch }),
        1 => place.prop_map(|place| Call::Drop { place }),
        5 => (buffer(), buffer(), range()).prop_map(|(from, to, range)| Call::Map { from, to, range }),
        4 => (buffer(), buffer()).prop_map(|(from, to)| Call::Add { from, to }),
        2 => (buffer(), range(), any::<u32>()).prop_map(|(to, range, value)| Call::Fill { to, range, value }),
        1 => (buffer(), range(), any::<u32>()).prop_map(|(to, range, value)| Call::Write { to, range, value }),
        3 => (buffer(), buffer(), (0..LEN, 0..LEN), 1..LEN).prop_map(|(from, to, at, len)| {
            Call::Copy { from, to, at, len: len.min(LEN - at.0).min(LEN - at.1) }
        }),
        1 => Just(Call::Barrier),
    ]
}

struct Kernels {
    map: Loaded<zoo::Map<u32>>,
    add: Loaded<zoo::Accumulate<u32>>,
}

impl Kernels {
    fn load(device: &Device) -> Self {
        let (map, add) = (zoo::triple1(), zoo::accumulate());
        Kernels { map: map.load(device).unwrap(), add: add.load(device).unwrap() }
    }
}

/// The buffers of one run of a program.
struct Buffers<'b> {
    outside: &'b mut [Buffer<u32>],
    places: [Option<Buffer<u32>>; PLACES],
    /// Those that the program dropped, in order; where they are kept, nothing is temporary.
    dropped: Vec<Buffer<u32>>,
}

impl Buffers<'_> {
    /// Puts a buffer into an empty place.
    fn need(&mut self, s: &mut impl Enqueue<Subject>, index: usize) -> dacapo::Result<()> {
        if let Some(place) = index.checked_sub(OUTSIDE).filter(|place| self.places[*place].is_none()) {
            self.places[place] = Some(s.alloc(LEN)?);
        }
        Ok(())
    }

    fn take(&mut self, index: usize) -> Buffer<u32> {
        let buffer = match index.checked_sub(OUTSIDE) {
            Some(place) => self.places[place].as_mut(),
            None => self.outside.get_mut(index),
        };
        // Taking it whole leaves an empty one behind, so that two places can be lent at once.
        buffer.map(|buffer| buffer.split_off(0)).transpose().unwrap().unwrap()
    }

    fn put(&mut self, index: usize, buffer: Buffer<u32>) {
        match index.checked_sub(OUTSIDE) {
            Some(place) => self.places[place] = Some(buffer),
            None => self.outside[index] = buffer,
        }
    }
}

fn run(
    s: &mut impl Enqueue<Subject>,
    k: &Kernels,
    program: &[Call],
    b: &mut Buffers<'_>,
) -> dacapo::Result<()> {
    for call in program {
        match *call {
            Call::Alloc { place, scratch } => {
                let mut new = if scratch { s.alloc_scratch(LEN)? } else { s.alloc(LEN)? };
                if scratch {
                    // Contents that nobody promised would differ from run to run.
                    s.fill(&mut new, 11)?;
                }
                b.dropped.extend(b.places[place].replace(new));
            }
            Call::Drop { place } => b.dropped.extend(b.places[place].take()),
            Call::Map { from, to, range: (start, end) } if from != to => {
                b.need(s, from)?;
                b.need(s, to)?;
                let (x, mut y) = (b.take(from), b.take(to));
                let args = (x.slice(start..end)?, y.slice_mut(start..end)?, Len, Len);
                s.launch(&k.map, Grid::covering(end - start), args)?;
                b.put(from, x);
                b.put(to, y);
            }
            Call::Add { from, to } if from != to => {
                b.need(s, from)?;
                b.need(s, to)?;
                let (x, mut y) = (b.take(from), b.take(to));
                s.launch(&k.add, Grid::covering(LEN), (&x, &mut y, Len, Len))?;
                b.put(from, x);
                b.put(to, y);
            }
            Call::Copy { from, to, at, len } if from != to => {
                b.need(s, from)?;
                b.need(s, to)?;
                let (x, mut y) = (b.take(from), b.take(to));
                s.copy(x.slice(at.0..at.0 + len)?, y.slice_mut(at.1..at.1 + len)?)?;
                b.put(from, x);
                b.put(to, y);
            }
            Call::Map { .. } | Call::Add { .. } | Call::Copy { .. } => {}
            Call::Fill { to, range: (start, end), value } => {
                b.need(s, to)?;
                let mut y = b.take(to);
                s.fill(y.slice_mut(start..end)?, value)?;
                b.put(to, y);
            }
            Call::Write { to, range: (start, end), value } => {
                b.need(s, to)?;
                let mut y = b.take(to);
                s.write(y.slice_mut(start..end)?, vec![value; end - start])?;
                b.put(to, y);
            }
            Call::Barrier => s.host_call(|| {})?,
        }
    }
    Ok(())
}

/// How a program is run.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Its calls, again and again.
    Eager,
    /// A graph, whose own buffers are all temporaries, or are all kept by the user.
    Graph { order: Order, keep: bool },
}

/// What a program leaves behind: the buffers from outside after each run, and its own buffers if they were kept.
type Left = (Vec<Vec<Vec<u32>>>, Vec<Vec<u32>>);

fn left_by(device: &Device, k: &Kernels, program: &[Call], way: Way) -> Left {
    let mut s = device.stream().unwrap();
    let mut outside: Vec<Buffer<u32>> = (0..OUTSIDE).map(|_| s.alloc(LEN).unwrap()).collect();
    let mut graph = None;
    let mut kept = Vec::new();
    if let Way::Graph { order, keep } = way {
        let step = |work: &mut Work<'_>| {
            let mut b = Buffers { outside: &mut outside, places: Default::default(), dropped: Vec::new() };
            run(work, k, program, &mut b)?;
            b.dropped.extend(b.places.into_iter().flatten());
            Ok(if keep { b.dropped } else { Vec::new() })
        };
        let (made, buffers) = s.record_with(CaptureOptions::new().order(order), step).unwrap();
        assert!(made.arena_bytes() <= made.unshared_bytes());
        (graph, kept) = (Some(made), buffers);
    }
    let mut after = Vec::new();
    for replay in 0..REPLAYS {
        s.write(&mut outside[0], (0..LEN as u32).map(|i| i ^ replay).collect::<Vec<_>>()).unwrap();
        match &mut graph {
            Some(graph) => drop(graph.replay(&mut s).unwrap()),
            None => {
                let mut b =
                    Buffers { outside: &mut outside, places: Default::default(), dropped: Vec::new() };
                run(&mut s, k, program, &mut b).unwrap();
                b.dropped.extend(b.places.into_iter().flatten());
                kept = b.dropped;
            }
        }
        after.push(outside.iter().map(|buffer| s.read(buffer).unwrap()).collect());
    }
    (after, kept.iter().map(|buffer| s.read(buffer).unwrap()).collect())
}

/// A plan that shared the bytes of two live buffers, an edge that was missing, or a zeroing left out where somebody
/// could tell would show in what the buffers hold.
#[test]
fn planned_unplanned_and_sequential_replays_leave_what_eager_execution_leaves() {
    let Some(device) = open(subject::side_by_side(DeviceOptions::new().max_streams(2))) else { return };
    let k = Kernels::load(&device);
    let config = ProptestConfig { cases: cases(150), failure_persistence: None, ..ProptestConfig::default() };
    let leaves_the_same = |program: Vec<Call>| {
        let (eager, own) = left_by(&device, &k, &program, Way::Eager);
        for order in [Order::DataFlow, Order::Sequential] {
            let (planned, _) = left_by(&device, &k, &program, Way::Graph { order, keep: false });
            prop_assert_eq!(&planned, &eager, "planned, {:?}", order);
            let (unplanned, kept) = left_by(&device, &k, &program, Way::Graph { order, keep: true });
            prop_assert_eq!(&unplanned, &eager, "unplanned, {:?}", order);
            prop_assert_eq!(&kept, &own, "buffers of the program, {:?}", order);
        }
        prop_assert!(device.check().is_ok());
        Ok(())
    };
    TestRunner::new(config).run(&proptest::collection::vec(call(), 1..40), leaves_the_same).unwrap();
}
