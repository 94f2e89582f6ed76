//! What enqueueing one operation costs the thread that does it, against a plain call and a channel send.
//!
//! **Measured.** A launch of a kernel that adds one to a number: with a worker that runs it at the same time, and on a
//! stepped device, where nothing runs until the clock has stopped, so that only the enqueueing counts. Beside them: the
//! same closure called through `dyn`; the same closure sent through a channel to a thread that calls it; launches with a
//! small table, from the cache and uploaded; and a pair of allocation and free of a pooled buffer. Every row's number is
//! compared at the end with how often it was to be added to.
//!
//! **How it can mislead.** A launch that finds its worker asleep wakes it, which is a system call, and one that finds
//! the queue full waits for it: the rows with a worker tell of both, and depend on whether the other core is free. The
//! stepped rows have neither, and are what the library's own work comes to. The channel does less: it has no order
//! between streams, no failures, and no arguments to check.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use dacapo::prelude::*;
use support::{Cost, Table, timed};

type Add = Kernel<(InOut<u64>,)>;

/// What stands for a kernel where there is no device.
type Call = dyn Fn(&mut [u64]);

fn add_one(numbers: &mut [u64]) {
    if let [number] = numbers {
        *number = number.wrapping_add(1);
    }
}

fn kernel(device: &Device) -> Add {
    Program::<(InOut<u64>,)>::new("add_one").host(|(x,), _| add_one(x)).load(device).unwrap()
}

/// Launches on a device whose worker runs them meanwhile.
fn with_a_worker(added: &AtomicU64) -> impl FnMut(u64) -> Cost {
    let device = Device::host().unwrap();
    let mut stream = device.stream().unwrap();
    let add = kernel(&device);
    let mut x = stream.alloc::<u64>(1).unwrap();
    move |iterations| {
        let took = timed(iterations, || stream.launch(&add, Grid::covering(1), (&mut x,)).unwrap());
        let total = added.fetch_add(iterations, Ordering::Relaxed) + iterations;
        assert_eq!(stream.read(&x).unwrap(), [total]);
        took
    }
}

/// Launches of which none runs before the clock has stopped.
fn enqueued_only(added: &AtomicU64) -> impl FnMut(u64) -> Cost {
    /// A stepped queue holds any number; so many that it stays in the cache, as a bounded one does.
    const BATCH: u64 = 512;
    let (device, stepper) = Device::<Host>::stepped(Default::default()).unwrap();
    let mut stream = device.stream().unwrap();
    let add = kernel(&device);
    let mut x = stream.alloc::<u64>(1).unwrap();
    move |iterations| {
        let mut took = Cost::default();
        let mut left = iterations;
        while left > 0 {
            let batch = left.min(BATCH);
            took += timed(batch, || stream.launch(&add, Grid::covering(1), (&mut x,)).unwrap());
            stepper.run(stream.id());
            left -= batch;
        }
        let total = added.fetch_add(iterations, Ordering::Relaxed) + iterations;
        assert_eq!(stream.read(&x).unwrap(), [total]);
        took
    }
}

/// What a launch brings along.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Brings {
    /// The same table each time.
    Known,
    /// A table that no launch had before.
    New,
}

/// Launches with a table of `words` words, of which none runs before the clock has stopped.
fn with_a_table(words: usize, brings: Brings) -> impl FnMut(u64) -> Cost {
    const BATCH: u64 = 512;
    let (device, stepper) = Device::<Host>::stepped(Default::default()).unwrap();
    let mut stream = device.stream().unwrap();
    let add = Program::<(Uniform<u64>, InOut<u64>)>::new("add").host(|(by, x), _| x[0] += by[1]);
    let add = add.load(&device).unwrap();
    let mut x = stream.alloc::<u64>(1).unwrap();
    let (mut by, mut added) = (vec![1; words], 0);
    move |iterations| {
        let mut took = Cost::default();
        let mut left = iterations;
        while left > 0 {
            let batch = left.min(BATCH);
            took += timed(batch, || {
                by[0] += u64::from(brings == Brings::New);
                stream.launch(&add, Grid::covering(1), (&by, &mut x)).unwrap();
            });
            stepper.run(stream.id());
            left -= batch;
        }
        added += iterations;
        assert_eq!(stream.read(&x).unwrap(), [added]);
        took
    }
}

/// What the channel carries.
type Sent = Arc<dyn Fn() + Send + Sync>;

/// A thread that calls what it is sent.
struct Channel {
    send: mpsc::SyncSender<Sent>,
    add: Sent,
    sum: Arc<AtomicU64>,
    sent: u64,
}

impl Channel {
    fn new() -> Self {
        // As many as a slot of a device holds.
        let (send, receive) = mpsc::sync_channel::<Sent>(1024);
        std::thread::spawn(move || receive.into_iter().for_each(|call| call()));
        let sum = Arc::new(AtomicU64::new(0));
        let number = sum.clone();
        let add = Arc::new(move || {
            number.fetch_add(1, Ordering::Release);
        });
        Channel { send, add, sum, sent: 0 }
    }

    fn run(&mut self, iterations: u64) -> Cost {
        let took = timed(iterations, || self.send.send(self.add.clone()).unwrap());
        self.sent += iterations;
        while self.sum.load(Ordering::Acquire) < self.sent {
            std::thread::yield_now();
        }
        assert_eq!(self.sum.load(Ordering::Acquire), self.sent);
        took
    }
}

fn launches(criterion: &mut criterion::Criterion) {
    let (mut called, mut number) = (0, [0]);
    let add: Box<Call> = Box::new(add_one);
    let (worker, stepped) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut channel = Channel::new();
    let mut table = Table::new("launch", "operation");
    table.row("plain call through dyn", 1, |iterations| {
        let took = timed(iterations, || std::hint::black_box(&add)(std::hint::black_box(&mut number)));
        called += iterations;
        assert_eq!(number, [called]);
        took
    });
    table.row("send through a channel, received meanwhile", 1, |iterations| channel.run(iterations));
    table.row("launch, enqueued only", 1, enqueued_only(&stepped));
    table.row("launch, run meanwhile", 1, with_a_worker(&worker));
    table.run(criterion);
}

fn tables(criterion: &mut criterion::Criterion) {
    let none = AtomicU64::new(0);
    let mut table = Table::new("launch with a table, enqueued only", "launch");
    table.row("without a table", 1, enqueued_only(&none));
    table.row("64 bytes, known", 1, with_a_table(8, Brings::Known));
    table.row("4 KiB, known", 1, with_a_table(512, Brings::Known));
    table.row("64 bytes, new each time", 1, with_a_table(8, Brings::New));
    table.run(criterion);
}

fn allocations(criterion: &mut criterion::Criterion) {
    const BYTES: usize = 4096;
    let device = Device::host().unwrap();
    let mut stream = device.stream().unwrap();
    let mut table = Table::new("allocate and free, warm", "pair");
    table.row("a vector of 4 KiB, not zeroed", 1, |iterations| {
        timed(iterations, || drop(std::hint::black_box(Vec::<u8>::with_capacity(BYTES))))
    });
    table.row("alloc_scratch of 4 KiB", 1, move |iterations| {
        timed(iterations, || drop(stream.alloc_scratch::<u8>(BYTES).unwrap()))
    });
    let mut stream = device.stream().unwrap();
    table.row("alloc of 4 KiB, zeroed by the device", 1, move |iterations| {
        let took = timed(iterations, || drop(stream.alloc::<u8>(BYTES).unwrap()));
        stream.sync().unwrap();
        took
    });
    table.run(criterion);
    assert_eq!(device.memory_usage().in_use, 0);
}

fn main() {
    let mut criterion = support::criterion();
    launches(&mut criterion);
    tables(&mut criterion);
    allocations(&mut criterion);
    criterion.final_summary();
}
