//! What a buffer costs to make and to drop, what bringing buffers together costs, and how much a pool holds for nothing.
//!
//! **Measured.** A pair is an allocation and its drop on one stream, warm. First `alloc_scratch` of 4 KiB with nobody
//! else there, and with 64 streams alive that have buffers of their own: the targets are 80 nanoseconds, and a ratio of at
//! most 1.3 between the two. Then pairs of four sizes: `alloc_scratch`, and `alloc`, whose zeroing is enqueued only (on
//! a stepped device, where it runs once the clock has stopped) or runs meanwhile; beside them a vector of that size, not
//! zeroed and zeroed. Then `compact` and `sync` on a pool of which every other buffer was dropped, for each KiB that
//! moved, against copying as many bytes in pieces of the same size; every byte is verified once. Last, after a random
//! life that ends with a full working set, the bytes that are held for each that is in use.
//!
//! **How it can mislead.** A pair gets the block back that it gave a moment ago, from a page that has no other work in
//! flight: the best there is. A vector of 4 MiB is mapped and unmapped by the system's allocator, zeroed or not, and one
//! that is not zeroed is never touched. Zeroing that runs meanwhile is bound by memory, on a core that must be free.
//! A compaction's figure has the look for pages and the bookkeeping of each move in it, which is why it nears `memcpy`
//! only for large buffers. Fragmentation depends on the mix: this one has as many small buffers as large ones.

mod support;

use std::hint::black_box;

use dacapo::prelude::*;
use dacapo::{MemoryUsage, Result};
use support::{Cost, Table, cost, is_smoke, timed};

/// Pairs of scratch memory on `stream`.
fn pairs(mut stream: Stream, bytes: usize) -> impl FnMut(u64) -> Cost {
    move |iterations| timed(iterations, || drop(black_box(stream.alloc_scratch::<u8>(bytes).unwrap())))
}

/// A device with so many streams beside the one that is measured, each with some buffers.
fn neighbours(device: &Device, streams: usize) -> Result<Vec<(Stream, Vec<Buffer<u8>>)>> {
    let neighbour = |_| {
        let mut stream = device.stream()?;
        let buffers: Result<_> = (1..=8).map(|i| stream.alloc(i * 1000)).collect();
        stream.sync()?;
        Ok((stream, buffers?))
    };
    (0..streams).map(neighbour).collect()
}

fn alone_and_among_many(criterion: &mut criterion::Criterion) {
    const BYTES: usize = 4096;
    let (alone, crowded) = (Device::host().unwrap(), Device::host().unwrap());
    let many = neighbours(&crowded, 64).unwrap();
    let in_use = crowded.memory_usage().in_use;
    let mut table = Table::new("a pair of 4 KiB", "pair");
    table.row("alloc_scratch, the only stream", 1, pairs(alone.stream().unwrap(), BYTES));
    table.row("alloc_scratch, 64 other streams alive", 1, pairs(crowded.stream().unwrap(), BYTES));
    table.row("a vector", 1, |iterations| {
        timed(iterations, || drop(black_box(Vec::<u8>::with_capacity(black_box(BYTES)))))
    });
    table.run(criterion);
    assert_eq!((alone.memory_usage().in_use, crowded.memory_usage().in_use), (0, in_use));
    drop(many);
}

/// Zeroed pairs of which no zeroing runs before the clock has stopped.
fn zeroed_later(bytes: usize) -> impl FnMut(u64) -> Cost {
    /// So many that the queue stays in the cache.
    const BATCH: u64 = 256;
    let (device, stepper) = Device::<Host>::stepped(Default::default()).unwrap();
    let mut stream = device.stream().unwrap();
    move |iterations| {
        let (mut took, mut left) = (Cost::default(), iterations);
        while left > 0 {
            let batch = left.min(BATCH);
            took += timed(batch, || drop(black_box(stream.alloc::<u8>(bytes).unwrap())));
            stepper.run(stream.id());
            left -= batch;
        }
        assert_eq!(device.memory_usage().in_use, 0);
        took
    }
}

fn zeroed_meanwhile(bytes: usize) -> impl FnMut(u64) -> Cost {
    let device = Device::host().unwrap();
    let mut stream = device.stream().unwrap();
    move |iterations| {
        let took = timed(iterations, || drop(black_box(stream.alloc::<u8>(bytes).unwrap())));
        let last = stream.alloc::<u8>(bytes).unwrap();
        assert!(stream.read(&last).unwrap().iter().all(|byte| *byte == 0));
        took
    }
}

fn sizes(criterion: &mut criterion::Criterion) {
    for (name, bytes) in [("256 B", 256), ("4 KiB", 4 << 10), ("256 KiB", 256 << 10), ("4 MiB", 4 << 20)] {
        let device = Device::host().unwrap();
        let mut table = Table::new(format!("a pair of {name}"), "pair");
        table.row("a vector", 1, |iterations| {
            timed(iterations, || drop(black_box(Vec::<u8>::with_capacity(black_box(bytes)))))
        });
        table.row("a vector, zeroed", 1, |iterations| {
            timed(iterations, || drop(black_box(vec![0u8; black_box(bytes)])))
        });
        table.row("alloc_scratch", 1, pairs(device.stream().unwrap(), bytes));
        table.row("alloc, zeroed later", 1, zeroed_later(bytes));
        table.row("alloc, zeroed meanwhile", 1, zeroed_meanwhile(bytes));
        table.run(criterion);
        assert_eq!(device.memory_usage().in_use, 0);
    }
}

/// A pool of which every other buffer was dropped.
struct Sparse {
    stream: Stream,
    buffers: Vec<Buffer<u8>>,
    bytes: usize,
}

impl Sparse {
    /// Bytes of all buffers, before every other one is dropped.
    const TOTAL: usize = 64 << 20;

    fn new(bytes: usize) -> Result<Self> {
        let mut stream = Device::host()?.stream()?;
        let mut buffers = Vec::new();
        for _ in 0..Self::TOTAL / bytes {
            buffers.push(stream.alloc_scratch(bytes)?);
        }
        for (number, buffer) in buffers.iter_mut().enumerate() {
            stream.fill(buffer, number as u8)?;
        }
        let mut number = 0;
        buffers.retain(|_| {
            number += 1;
            number % 2 == 0
        });
        stream.sync()?;
        Ok(Sparse { stream, buffers, bytes })
    }

    /// Brings the buffers together; how many bytes that moved.
    fn compact(&mut self) -> (u64, Cost) {
        let mut last = self.stream.alloc::<u8>(1).unwrap();
        let (moved, cost) = cost(|| {
            let moved = self.stream.compact().unwrap();
            // The moves are the device's own, and a stream waits for what it enqueued: this comes after them.
            self.stream.fill(&mut last, 1).unwrap();
            self.stream.sync().unwrap();
            moved
        });
        assert!(moved.pages > 0);
        (moved.bytes as u64, cost)
    }

    fn verify(&mut self) {
        for (number, buffer) in self.buffers.iter().enumerate() {
            let expected = vec![(2 * number + 1) as u8; self.bytes];
            assert!(self.stream.read(buffer).unwrap() == expected, "buffer {number} of {}", self.bytes);
        }
    }
}

fn compaction(criterion: &mut criterion::Criterion) {
    for (name, bytes) in [("4 KiB", 4 << 10), ("64 KiB", 64 << 10), ("448 KiB", 448 << 10)] {
        let mut first = Sparse::new(bytes).unwrap();
        let (moved, _) = first.compact();
        first.verify();
        let copied = moved as usize / bytes * bytes;
        let (from, mut to) = (vec![1u8; copied], vec![0u8; copied]);
        let mut table = Table::new(format!("compaction of {} MiB in buffers of {name}", moved >> 20), "KiB");
        table.row("memcpy", moved >> 10, move |iterations| {
            timed(iterations, || {
                let pieces = to.chunks_exact_mut(bytes).zip(from.chunks_exact(bytes));
                pieces.for_each(|(to, from)| black_box(to).copy_from_slice(black_box(from)));
            })
        });
        table.row("compact and sync", moved >> 10, move |iterations| {
            let mut took = Cost::default();
            for _ in 0..iterations {
                let (again, cost) = Sparse::new(bytes).unwrap().compact();
                assert_eq!(again, moved, "the same pool compacts in the same way");
                took += cost;
            }
            took
        });
        table.run(criterion);
    }
}

/// Sizes from 256 bytes to `most`, with as many below any size as the logarithm says.
struct Sizes {
    state: u64,
    most: f64,
}

impl Sizes {
    fn random(&mut self) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.state >> 33
    }

    fn next(&mut self) -> usize {
        let part = self.random() as f64 / (1u64 << 31) as f64;
        (256.0 * (self.most / 256.0).powf(part)) as usize
    }
}

/// What a device holds after so many buffers came and went, with `target` bytes alive; and what once compacted.
fn after_a_life(most: usize, target: usize) -> Result<[MemoryUsage; 2]> {
    let device = Device::host()?;
    let mut stream = device.stream()?;
    let mut sizes = Sizes { state: 1, most: most as f64 };
    let (mut alive, mut bytes): (Vec<Buffer<u8>>, usize) = (Vec::new(), 0);
    for _ in 0..if is_smoke() { 2_000 } else { 200_000 } {
        while bytes > target {
            let leaves = alive.swap_remove(sizes.random() as usize % alive.len());
            bytes -= leaves.len();
        }
        let comes = stream.alloc_scratch(sizes.next())?;
        bytes += comes.len();
        alive.push(comes);
    }
    let before = device.memory_usage();
    stream.compact()?;
    stream.sync()?;
    stream.memory_cleanup()?;
    while device.memory_usage().pending > 0 {
        std::thread::yield_now();
    }
    Ok([before, device.memory_usage()])
}

fn fragmentation() {
    println!("\nheld / in use after a random life on one stream: as it is, and compacted");
    for (name, most) in
        [("256 B to 64 KiB", 64 << 10), ("256 B to 512 KiB", 512 << 10), ("256 B to 8 MiB", 8 << 20)]
    {
        for target in [16 << 20, 128 << 20] {
            let ratio = |usage: MemoryUsage| usage.held as f64 / usage.in_use as f64;
            let [before, after] = after_a_life(most, target).unwrap().map(ratio);
            println!("{:<56} {before:>10.3} {after:>10.3}", format!("{name}, {} MiB alive", target >> 20));
        }
    }
}

fn main() {
    let mut criterion = support::criterion();
    fragmentation();
    alone_and_among_many(&mut criterion);
    sizes(&mut criterion);
    compaction(&mut criterion);
    criterion.final_summary();
}
