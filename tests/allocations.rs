//! Nothing allocates once it is warm: not the thread that calls, not the workers, not the crew.
//!
//! An allocation on a launch path takes a lock of the allocator's, and now and then a system call: it is what makes the
//! one launch in a thousand slow. Every case runs until a round of it allocates nothing, since lists and tables grow
//! when they are first needed, and from then on no round may allocate at all.
//!
//! Without the usual test harness, whose threads allocate whenever they like: here, every allocation of the process is
//! one of ours.

#[path = "../benches/support/counting.rs"]
mod counting;
mod runner;

use std::sync::{Arc, Barrier};

use counting::{Allocations, Counting};
use dacapo::prelude::*;
use dacapo::{AllocationMode, CaptureOptions, DeviceOptions, Order, Recording, State, host::HostOptions};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

type Add = Kernel<(InOut<u64>, u64)>;

const GRID: usize = 1;

/// Runs `round` until it allocates nothing, and then so often that every list would have had to grow.
fn never_allocates_once_warm(what: &str, mut round: impl FnMut() -> Allocations) {
    const WARM_UP: usize = 200;
    const ROUNDS: usize = 100;
    let quiet = Allocations { thread: 0, process: 0 };
    assert!((0..WARM_UP).any(|_| round() == quiet), "{what}: every round of the warm-up allocates");
    for n in 0..ROUNDS {
        assert_eq!(round(), quiet, "{what}, round {n}");
    }
}

/// What `f` and the threads that it keeps busy allocate.
fn counted(f: impl FnOnce()) -> Allocations {
    let before = Allocations::now();
    f();
    before.since()
}

/// How many operations a slot of these devices holds: no power of two, so that lists which double have room to spare.
const IN_FLIGHT: usize = 100;

/// A device with two slots and two threads for a graph, each of whose threads has worked and slept already: what a
/// thread allocates for itself when it starts is not to be found in a round that counts.
fn device() -> Device {
    let host = HostOptions::new().threads(2).in_flight(IN_FLIGHT);
    let device = Device::open(DeviceOptions::new().max_streams(2).backend(host)).unwrap();
    let mut streams = [device.stream().unwrap(), device.stream().unwrap()];
    let mut meeting = Meeting::new(&device, &mut streams[0], 1);
    for _ in 0..10 {
        // The crew, the workers, and the thread that gives memory back.
        meeting.replay(&mut streams[0]);
        streams.iter_mut().for_each(|stream| fill_the_queue(&device, stream));
        let held = device.memory_usage().held;
        streams[0].allocating(AllocationMode::Dedicated, |work| work.alloc_scratch::<u64>(1)).unwrap();
        while device.memory_usage().held > held {
            std::thread::yield_now();
        }
    }
    device
}

/// A graph of pairs of nodes that wait for each other: a replay that ends has had two threads at work at once.
struct Meeting {
    graph: Graph,
    x: Buffer<u64>,
    y: Buffer<u64>,
}

impl Meeting {
    fn new(device: &Device, stream: &mut Stream, times: usize) -> Self {
        let meeting = Barrier::new(2);
        let meet = Program::<(InOut<u64>,)>::new("meet").host(move |(x,), _| {
            meeting.wait();
            x[0] += 1;
        });
        let meet = meet.load(device).unwrap();
        let (mut x, mut y) = (stream.alloc(1).unwrap(), stream.alloc(1).unwrap());
        let (graph, ()) = stream
            .record(|work| {
                (0..times).try_for_each(|_| {
                    work.launch(&meet, Grid::covering(GRID), (&mut x,))?;
                    work.launch(&meet, Grid::covering(GRID), (&mut y,))
                })
            })
            .unwrap();
        Meeting { graph, x, y }
    }

    fn replay(&mut self, stream: &mut Stream) {
        self.graph.replay(stream).unwrap().wait().unwrap();
    }
}

/// Fills the slot of `stream` with as many operations as it may hold, so that there are blocks of arguments for all of
/// them from then on: how far the worker falls behind in the rounds that count is up to the machine.
fn fill_the_queue(device: &Device, stream: &mut Stream) {
    let (started, release) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (here, go) = (started.clone(), release.clone());
    let gate = Program::<(InOut<u64>, u64)>::new("gate").host(move |_, _| {
        here.wait();
        go.wait();
    });
    let (gate, add) = (gate.load(device).unwrap(), add(device));
    let mut x = stream.alloc::<u64>(1).unwrap();
    stream.launch(&gate, Grid::covering(GRID), (&mut x, 0u64)).unwrap();
    started.wait();
    for _ in 0..IN_FLIGHT {
        stream.launch(&add, Grid::covering(GRID), (&mut x, 0u64)).unwrap();
    }
    release.wait();
    stream.sync().unwrap();
}

fn add(device: &Device) -> Add {
    let add = Program::<(InOut<u64>, u64)>::new("add")
        .check(|_, (len, _)| if len > 0 { Ok(()) } else { Err("nothing to add to") });
    add.host(|(x, by), _| x.iter_mut().for_each(|x| *x += by)).load(device).unwrap()
}

/// Buffers that come and go in the same sizes, used and unused, on one slot and in one loop.
fn scratch_that_comes_and_goes_allocates_nothing() {
    let device = device();
    let (add, mut stream) = (add(&device), device.stream().unwrap());
    let sizes = [1, 100, 4096, 1 << 20];
    let mut kept = Some(stream.alloc::<u64>(1).unwrap());
    fill_the_queue(&device, &mut stream);
    never_allocates_once_warm("scratch that comes and goes", || {
        counted(|| {
            for _ in 0..3 {
                for bytes in sizes {
                    drop(stream.alloc_scratch::<u8>(bytes).unwrap());
                }
                let mut used = stream.alloc_scratch::<u64>(1).unwrap();
                stream.fill(&mut used, 7).unwrap();
                stream.launch(&add, Grid::covering(GRID), (&mut used, 1u64)).unwrap();
                // Nothing in flight refers to the last one's bytes when it goes.
                stream.sync().unwrap();
                kept = Some(used);
            }
        })
    });
    assert_eq!(stream.read(&kept.unwrap()).unwrap(), [8]);
}

/// A block of arguments made anew for each launch would be an allocation a launch.
fn launches_allocate_nothing() {
    let device = device();
    let (add, mut stream) = (add(&device), device.stream().unwrap());
    let named = add.with_state(&State::new(&device));
    let mut x = stream.alloc::<u64>(1).unwrap();
    let mut launched = 0;
    fill_the_queue(&device, &mut stream);
    never_allocates_once_warm("launch", || {
        counted(|| {
            // More than a slot holds in flight, so that some wait for room.
            for _ in 0..IN_FLIGHT {
                stream.launch(&add, Grid::covering(GRID), (&mut x, 1u64)).unwrap();
                stream.launch(&named, Grid::covering(GRID), (&mut x, 1u64)).unwrap();
                launched += 2;
            }
            stream.sync().unwrap();
        })
    });
    assert_eq!(stream.read(&x).unwrap(), [launched]);
}

/// A launch that meets another slot's work takes other locks and leaves other marks than one that does not.
fn launches_on_two_slots_allocate_nothing() {
    let device = device();
    let add = add(&device);
    let (mut one, mut other) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = one.alloc::<u64>(1).unwrap();
    let mut launched = 0;
    fill_the_queue(&device, &mut one);
    fill_the_queue(&device, &mut other);
    never_allocates_once_warm("launches in turns on two slots", || {
        counted(|| {
            for _ in 0..100 {
                one.launch(&add, Grid::covering(GRID), (&mut x, 1u64)).unwrap();
                other.launch(&add, Grid::covering(GRID), (&mut x, 1u64)).unwrap();
                launched += 2;
            }
            one.sync().unwrap();
            other.sync().unwrap();
        })
    });
    assert_eq!(one.read(&x).unwrap(), [launched]);
}

/// Copies and fills go the way of launches, and must not have a slower lane.
fn copies_and_fills_allocate_nothing() {
    let device = device();
    let mut stream = device.stream().unwrap();
    let (mut x, mut y) = (stream.alloc::<u64>(16).unwrap(), stream.alloc::<u64>(16).unwrap());
    fill_the_queue(&device, &mut stream);
    never_allocates_once_warm("copy and fill", || {
        counted(|| {
            for _ in 0..100 {
                stream.fill(&mut x, 7u64).unwrap();
                stream.copy(&x, &mut y).unwrap();
            }
            stream.sync().unwrap();
        })
    });
    assert_eq!(stream.read(&y).unwrap(), [7; 16]);
}

/// What carries a transfer is used again: its block, and what the block travels in. `read` makes the `Vec` that it
/// returns and nothing else.
fn writes_and_reads_allocate_nothing() {
    let device = device();
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<u64>(16).unwrap();
    let mut into = [0; 16];
    fill_the_queue(&device, &mut stream);
    let mut round = 0;
    never_allocates_once_warm("write and read_into", || {
        counted(|| {
            for _ in 0..100 {
                round += 1;
                stream.write(&mut x, &[round; 16]).unwrap();
                stream.read_into(&x, &mut into).unwrap();
                assert_eq!(into, [round; 16]);
            }
        })
    });
    let reads = counted(|| (0..100).for_each(|_| assert_eq!(stream.read(&x).unwrap(), [round; 16])));
    assert_eq!(reads.thread, 100);
}

fn record(stream: &mut Stream<Recording>, add: &Add, x: &mut [Buffer<u64>]) {
    for n in 0..1000u64 {
        let at = n as usize % x.len();
        stream.launch(add, Grid::covering(GRID), (&mut x[at], n)).unwrap();
    }
}

/// A recorder that started empty each time would grow again in every window.
fn recording_an_operation_allocates_nothing() {
    let device = device();
    let add = add(&device);
    let mut idle = Some(device.stream().unwrap());
    let mut x: Vec<_> = (0..8).map(|_| idle.as_mut().unwrap().alloc::<u64>(1).unwrap()).collect();
    idle.as_mut().unwrap().sync().unwrap();
    never_allocates_once_warm("record", || {
        let mut recording = idle.take().unwrap().prepare().unwrap().begin().unwrap();
        let allocations = counted(|| record(&mut recording, &add, &mut x));
        let (graph, stream) = recording.end().unwrap();
        assert_eq!(graph.nodes(), 1000);
        idle = Some(stream);
        allocations
    });
}

/// An aborted recording that threw its room away would make the next one pay.
fn recording_after_an_abort_allocates_nothing() {
    let device = device();
    let add = add(&device);
    let mut idle = Some(device.stream().unwrap());
    let mut x: Vec<_> = (0..8).map(|_| idle.as_mut().unwrap().alloc::<u64>(1).unwrap()).collect();
    idle.as_mut().unwrap().sync().unwrap();
    never_allocates_once_warm("record after an abort", || {
        let mut recording = idle.take().unwrap().prepare().unwrap().begin().unwrap();
        let allocations = counted(|| record(&mut recording, &add, &mut x));
        idle = Some(recording.abort());
        allocations
    });
}

fn replays_allocate_nothing(what: &str, chains: usize, order: Order) {
    let device = device();
    let (add, mut stream) = (add(&device), device.stream().unwrap());
    let mut x: Vec<_> = (0..chains).map(|_| stream.alloc::<u64>(1).unwrap()).collect();
    let options = CaptureOptions::new().order(order);
    let (mut graph, ()) = stream
        .record_with(options, |work| {
            (0..100 * chains)
                .try_for_each(|n| work.launch(&add, Grid::covering(GRID), (&mut x[n % chains], 1u64)))
        })
        .unwrap();
    let mut replays = 0;
    never_allocates_once_warm(what, || {
        counted(|| {
            for _ in 0..10 {
                let ticket = graph.replay(&mut stream).unwrap();
                ticket.wait().unwrap();
                assert!(ticket.is_done());
                replays += 1;
            }
        })
    });
    for x in &x {
        assert_eq!(stream.read(x).unwrap(), [100 * replays]);
    }
}

/// A helper that slept through every replay would be counted as one that allocates nothing.
fn replays_on_two_threads_at_once_allocate_nothing() {
    const TIMES: usize = 20;
    let device = device();
    let mut stream = device.stream().unwrap();
    let mut meeting = Meeting::new(&device, &mut stream, TIMES);
    let mut replays = 0;
    never_allocates_once_warm("replay whose nodes meet", || {
        replays += TIMES as u64;
        counted(|| meeting.replay(&mut stream))
    });
    assert_eq!(stream.read(&meeting.x).unwrap(), [replays]);
    assert_eq!(stream.read(&meeting.y).unwrap(), [replays]);
}

/// The loop that replays are for: new input, replay. The use of a member from outside is noted, and must find room.
fn a_loop_of_input_and_replay_allocates_nothing() {
    let device = device();
    let (add, mut stream) = (add(&device), device.stream().unwrap());
    let mut other = device.stream().unwrap();
    let mut x = stream.alloc::<u64>(1).unwrap();
    let (mut graph, ()) =
        stream.record(|work| work.launch(&add, Grid::covering(GRID), (&mut x, 1u64))).unwrap();
    fill_the_queue(&device, &mut stream);
    fill_the_queue(&device, &mut other);
    never_allocates_once_warm("input on another stream, and replay", || {
        counted(|| {
            for _ in 0..50 {
                other.fill(&mut x, 5u64).unwrap();
                graph.replay(&mut stream).unwrap();
            }
            stream.sync().unwrap();
            other.sync().unwrap();
        })
    });
    assert_eq!(stream.read(&x).unwrap(), [6]);
}

/// An autotuner asks before every launch.
fn queries_of_the_status_allocate_nothing() {
    let device = device();
    let status = device.captures();
    let idle = device.stream().unwrap();
    let mut open = Vec::new();
    for windows in [0, 1, 8, 64] {
        open.resize_with(windows, || device.stream().unwrap().prepare().unwrap().begin().unwrap());
        never_allocates_once_warm("status", || {
            counted(|| {
                for _ in 0..100 {
                    assert_eq!(status.any_active(), windows > 0);
                    assert_eq!(status.any_recording(), windows > 0);
                    assert_eq!((status.active_count(), status.recording_count()), (windows, windows));
                    assert!(!status.is_capturing(idle.id()));
                    assert!(open.iter().all(|stream| status.is_capturing(stream.id())));
                }
            })
        });
    }
}

type Look = Kernel<(Uniform<u64>, InOut<u64>)>;

fn look(device: &Device) -> Look {
    let look = Program::<(Uniform<u64>, InOut<u64>)>::new("look").host(|(by, x), _| x[0] += by[1]);
    look.load(device).unwrap()
}

/// A copy of a table's bytes on the heap, to look for them, would be an allocation a launch.
fn launches_with_a_warm_table_allocate_nothing() {
    let device = device();
    let (look, mut stream) = (look(&device), device.stream().unwrap());
    let mut x = stream.alloc::<u64>(1).unwrap();
    let mut launched = 0;
    fill_the_queue(&device, &mut stream);
    never_allocates_once_warm("launch with a table", || {
        counted(|| {
            for n in 0..2 * IN_FLIGHT as u64 {
                stream.launch(&look, Grid::covering(GRID), (&[n % 3, 1], &mut x)).unwrap();
                launched += 1;
            }
            stream.sync().unwrap();
        })
    });
    assert_eq!(stream.read(&x).unwrap(), [launched]);
}

/// The same while a window is warmed up for, where the window holds what it uses, and in the recording.
fn recorded_launches_with_a_warm_table_allocate_nothing() {
    let device = device();
    let (look, mut idle) = (look(&device), Some(device.stream().unwrap()));
    let mut x = idle.as_mut().unwrap().alloc::<u64>(1).unwrap();
    never_allocates_once_warm("record with a table", || {
        let mut prepared = idle.take().unwrap().prepare().unwrap();
        for n in 0..3 {
            prepared.launch(&look, Grid::covering(GRID), (&[n, 1], &mut x)).unwrap();
        }
        prepared.sync().unwrap();
        let warm_up = counted(|| {
            for n in 0..50 {
                prepared.launch(&look, Grid::covering(GRID), (&[n % 3, 1], &mut x)).unwrap();
            }
            prepared.sync().unwrap();
        });
        let mut recording = prepared.begin().unwrap();
        let recorded = counted(|| {
            for n in 0..1000 {
                recording.launch(&look, Grid::covering(GRID), (&[n % 3, 1], &mut x)).unwrap();
            }
        });
        let (graph, stream) = recording.end().unwrap();
        assert_eq!(graph.nodes(), 1000);
        idle = Some(stream);
        Allocations { thread: warm_up.thread + recorded.thread, process: warm_up.process + recorded.process }
    });
}

/// A recording whose tables are in no cache keeps them among its own lists.
fn recorded_launches_with_new_tables_allocate_nothing() {
    let device = device();
    let (look, mut idle) = (look(&device), Some(device.stream().unwrap()));
    let mut x = idle.as_mut().unwrap().alloc::<u64>(1).unwrap();
    let mut round = 0;
    never_allocates_once_warm("record with new tables", || {
        let mut recording = idle.take().unwrap().prepare().unwrap().begin().unwrap();
        round += 1;
        // The first one makes what stands for all of them.
        recording.launch(&look, Grid::covering(GRID), (&[0, round], &mut x)).unwrap();
        let allocations = counted(|| {
            for n in 0..1000 {
                recording.launch(&look, Grid::covering(GRID), (&[n, round], &mut x)).unwrap();
            }
        });
        let (graph, stream) = recording.end().unwrap();
        assert_eq!(graph.nodes(), 1001);
        idle = Some(stream);
        allocations
    });
}

fn main() {
    let cases: [(&str, fn()); 16] = [
        ("scratch_that_comes_and_goes_allocates_nothing", scratch_that_comes_and_goes_allocates_nothing),
        ("launches_allocate_nothing", launches_allocate_nothing),
        ("launches_on_two_slots_allocate_nothing", launches_on_two_slots_allocate_nothing),
        ("copies_and_fills_allocate_nothing", copies_and_fills_allocate_nothing),
        ("writes_and_reads_allocate_nothing", writes_and_reads_allocate_nothing),
        ("recording_an_operation_allocates_nothing", recording_an_operation_allocates_nothing),
        ("recording_after_an_abort_allocates_nothing", recording_after_an_abort_allocates_nothing),
        ("replays_of_a_chain_allocate_nothing", || {
            replays_allocate_nothing("replay of a chain", 1, Order::DataFlow)
        }),
        ("replays_of_a_parallel_graph_allocate_nothing", || {
            replays_allocate_nothing("replay of 8 chains", 8, Order::DataFlow)
        }),
        ("sequential_replays_allocate_nothing", || {
            replays_allocate_nothing("sequential replay of 8 chains", 8, Order::Sequential)
        }),
        ("replays_on_two_threads_at_once_allocate_nothing", replays_on_two_threads_at_once_allocate_nothing),
        ("a_loop_of_input_and_replay_allocates_nothing", a_loop_of_input_and_replay_allocates_nothing),
        ("launches_with_a_warm_table_allocate_nothing", launches_with_a_warm_table_allocate_nothing),
        (
            "recorded_launches_with_a_warm_table_allocate_nothing",
            recorded_launches_with_a_warm_table_allocate_nothing,
        ),
        (
            "recorded_launches_with_new_tables_allocate_nothing",
            recorded_launches_with_new_tables_allocate_nothing,
        ),
        ("queries_of_the_status_allocate_nothing", queries_of_the_status_allocate_nothing),
    ];
    if runner::is_asked_for(cases.iter().map(|(name, _)| *name)) {
        return;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    for (name, case) in cases {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())) {
            case();
            println!("test {name} ... ok");
        }
    }
}
