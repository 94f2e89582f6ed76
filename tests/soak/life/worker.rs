//! One thread: what it owns, and what it does next.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dacapo::host::Severity;
use dacapo::{AllocationMode, Call, RawBuffer, ReadFuture, WindowId};
use parking_lot::Mutex;

use super::bundle::{Bundle, Ending, Window};
use super::checks::{answered, is_late, same_bytes};
use super::model::Model;
use super::random::{Rng, fresh_bytes};
use super::steps::{Cells, Step, Tools};
use super::support::subject;
use super::support::{Buffer, Device, Enqueue, Stream, Subject, Work, block_on};
use super::tally::{What, count};

/// Bytes of the largest buffer.
const LARGEST: usize = 4 << 20;

/// Sizes that come again and again.
const WEIGHTS: [usize; 4] = [12_288, 196_608, 786_432, 3_145_728];

/// What the threads share.
pub struct Shared {
    pub device: Device,
    pub tools: Tools,
    /// Streams that nobody drives at the moment: any thread may take any of them.
    pub streams: Mutex<Vec<Stream>>,
    /// Buffers and graphs on their way from one thread to another, with their work in flight.
    pub market: Mutex<Vec<Goods>>,
    /// Windows that any thread may evict.
    pub windows: Mutex<Vec<WindowId>>,
    pub stop: AtomicBool,
    /// Bytes that each thread may own.
    pub share: usize,
}

pub enum Goods {
    Buffer(Buffer<u8>, Model, bool),
    Bundle(Box<Bundle>),
}

pub struct Worker {
    rng: Rng,
    pub shelf: Cells,
    pub bundles: Vec<Bundle>,
    window: Option<Window>,
    futures: Vec<(ReadFuture<u8>, Option<Vec<u8>>)>,
    /// Addresses that are good for as long as these live, which may be longer than their buffers.
    addresses: Vec<RawBuffer<Subject>>,
}

impl Worker {
    pub fn new(seed: u64) -> Self {
        Worker {
            rng: Rng::new(seed),
            shelf: Cells::default(),
            bundles: Vec::new(),
            window: None,
            futures: Vec::new(),
            addresses: Vec::new(),
        }
    }

    /// Works until it is told to stop; counts its turns in `progress`. Afterwards no window is open, and nothing is
    /// in flight that anybody waits for.
    pub fn run(mut self, shared: &Shared, progress: &AtomicU64) -> Self {
        while !shared.stop.load(Ordering::Relaxed) {
            self.turn(shared);
            while self.bytes() > shared.share || self.shelf.len() > 400 {
                self.retire(shared);
            }
            progress.fetch_add(1, Ordering::Relaxed);
        }
        self.close(shared, Ending::End);
        self.settle(usize::MAX);
        self.addresses.clear();
        self
    }

    fn turn(&mut self, shared: &Shared) {
        match self.rng.below(100) {
            0..20 => self.create(shared),
            20..46 => self.steps(shared),
            46..56 => self.read(shared),
            56..61 => self.read_later(shared),
            61..65 => self.settle(2),
            65..68 => self.split(),
            68..73 => self.trade(shared),
            73..78 => self.capture(shared),
            78..86 => self.replay(shared),
            86..89 => self.dismantle(shared),
            89..94 => self.window(shared),
            94 => self.retire(shared),
            95 => self.hand_down(shared),
            96 if subject::HAS_ADDRESSES => self.address(shared),
            _ => self.odds_and_ends(shared),
        }
    }

    fn create(&mut self, shared: &Shared) {
        let rng = &mut self.rng;
        let is_weight = rng.once_in(6);
        let len = if is_weight { WEIGHTS[rng.below(WEIGHTS.len())] } else { rng.size(LARGEST) };
        let mode = match rng.below(12) {
            0 => AllocationMode::Dedicated,
            1..4 if is_weight => AllocationMode::Persistent,
            _ => AllocationMode::Pooled,
        };
        let what = rng.below(3);
        let made = shared.with_stream(rng, |stream| {
            let scratch = |work: &mut Work<'_>| work.alloc_scratch::<u8>(len);
            match what {
                0 => answered("alloc", stream.allocating(mode, |work| work.alloc(len)))
                    .map(|buffer| (buffer, Model::zeroed(len))),
                1 if subject::REFUSES_UNWRITTEN => {
                    answered("alloc_scratch", stream.allocating(mode, scratch))
                        .map(|buffer| (buffer, Model::unwritten(len)))
                }
                _ => {
                    let mut buffer = answered("alloc_scratch", stream.allocating(mode, scratch))?;
                    let mut model = Model::unwritten(len);
                    let data = fresh_bytes(len);
                    if answered("write", stream.write(&mut buffer, &data)).is_some() {
                        model.write(&(0..len)).copy_from_slice(&data);
                    }
                    Some((buffer, model))
                }
            }
        });
        if let Some((buffer, model)) = made {
            count(What::Allocation);
            self.shelf.push(buffer, model, true);
        }
    }

    /// A few operations, on one stream after another.
    fn steps(&mut self, shared: &Shared) {
        for _ in 0..1 + self.rng.below(3) {
            let turns = 1 + self.rng.below(4);
            let in_bundle = self.rng.once_in(4) && !self.bundles.is_empty();
            let bundle = self.rng.below(self.bundles.len());
            let cells = if in_bundle { &mut self.bundles[bundle].cells } else { &mut self.shelf };
            let lens: Vec<usize> = cells.live_lens();
            let steps = (0..turns)
                .filter_map(|_| Step::random(&mut self.rng, &lens, &cells.aligned, &shared.tools.weights));
            let steps: Vec<Step> = steps.collect();
            shared.with_stream(&mut self.rng, |stream| {
                for step in &steps {
                    match answered("a step", step.enqueue(stream, &shared.tools, &mut cells.buffers)) {
                        Some(()) => {
                            count(What::Step);
                            step.apply(&shared.tools, &mut cells.models);
                        }
                        None => step.spoil(&mut cells.models),
                    }
                }
            });
        }
    }

    fn read(&mut self, shared: &Shared) {
        let in_bundle = self.rng.once_in(3) && !self.bundles.is_empty();
        let bundle = self.rng.below(self.bundles.len());
        let cells = if in_bundle { &self.bundles[bundle].cells } else { &self.shelf };
        let Some((cell, buffer)) = cells.any_live(&mut self.rng) else { return };
        let range = self.rng.range(buffer.len());
        let found = shared.with_stream(&mut self.rng, |stream| stream.read(buffer.slice(range.clone())?));
        same_bytes("read", found, cells.models[cell].read(&range));
    }

    fn read_later(&mut self, shared: &Shared) {
        let Some((cell, buffer)) = self.shelf.any_live(&mut self.rng) else { return };
        let range = self.rng.range(buffer.len());
        let future =
            shared.with_stream(&mut self.rng, |stream| stream.read_async(buffer.slice(range.clone())?));
        let Some(future) = answered("read_async", future) else { return };
        // Some are dropped at once, with the read in flight.
        if self.rng.once_in(4) {
            count(What::FutureDropped);
        } else {
            let expected = self.shelf.models[cell].read(&range).map(<[u8]>::to_vec);
            self.futures.push((future, expected));
        }
        if self.futures.len() > 8 {
            self.settle(1);
        }
    }

    /// Waits for some of the reads in flight.
    fn settle(&mut self, most: usize) {
        let count = self.futures.len().min(most);
        for (future, expected) in self.futures.drain(..count) {
            same_bytes("a read in flight", block_on(future), expected.as_deref());
        }
    }

    fn split(&mut self) {
        let Some((cell, _)) = self.shelf.any_live(&mut self.rng) else { return };
        let at = self.rng.below(self.shelf.models[cell].len());
        let Some(buffer) = self.shelf.buffers[cell].as_mut().filter(|buffer| at > 0 && at < buffer.len())
        else {
            return;
        };
        let tail = buffer.split_off(at).unwrap();
        let model = self.shelf.models[cell].split_off(at);
        let aligned = self.shelf.aligned[cell] && at.is_multiple_of(4);
        self.shelf.push(tail, model, aligned);
    }

    /// Holds a buffer where it is, while everything around it moves.
    fn address(&mut self, shared: &Shared) {
        if self.addresses.len() > 6 {
            self.addresses.truncate(3);
        }
        let Some((_, buffer)) = self.shelf.any_live(&mut self.rng) else { return };
        let held = buffer.raw().unwrap();
        shared.compact(&mut self.rng);
        let Ok(again) = buffer.raw() else { panic!("an address that was there is gone") };
        assert_eq!(held.address(), again.address(), "a buffer moved while its address was held");
        self.addresses.push(held);
    }

    /// Gives something away, and takes something that another thread gave away.
    fn trade(&mut self, shared: &Shared) {
        let goods = if self.rng.once_in(3) && !self.bundles.is_empty() {
            let at = self.rng.below(self.bundles.len());
            Some(Goods::Bundle(Box::new(self.bundles.swap_remove(at))))
        } else if self.shelf.len() > 0 {
            let at = self.rng.below(self.shelf.len());
            let (buffer, model, aligned) = self.shelf.swap_remove(at);
            buffer.map(|buffer| Goods::Buffer(buffer, model, aligned))
        } else {
            None
        };
        let mut market = shared.market.lock();
        market.extend(goods);
        let bought = if market.len() > 4 { Some(market.remove(0)) } else { None };
        drop(market);
        if bought.is_some() {
            count(What::Trade);
        }
        match bought {
            Some(Goods::Buffer(buffer, model, aligned)) => self.shelf.push(buffer, model, aligned),
            Some(Goods::Bundle(bundle)) => self.bundles.push(*bundle),
            None => {}
        }
    }

    /// Cells for a graph, taken off the shelf.
    fn some_cells(&mut self) -> Option<Cells> {
        let mut cells = Cells::default();
        for _ in 0..1 + self.rng.below(4) {
            let at = self.rng.below(self.shelf.len());
            if self.shelf.len() > 0
                && let (Some(buffer), model, aligned) = self.shelf.swap_remove(at)
            {
                cells.push(buffer, model, aligned);
            }
        }
        (cells.len() > 0).then_some(cells)
    }

    fn capture(&mut self, shared: &Shared) {
        let Some(cells) = self.some_cells() else { return };
        let mut rng = Rng::new(self.rng.next());
        let made =
            shared.with_stream(&mut self.rng, |stream| Bundle::make(&mut rng, stream, &shared.tools, cells));
        self.keep(made);
    }

    fn keep(&mut self, made: Result<Bundle, Cells>) {
        match made {
            Ok(bundle) => self.bundles.push(bundle),
            Err(cells) => self.shelf.take_all(cells),
        }
    }

    fn replay(&mut self, shared: &Shared) {
        for _ in 0..1 + self.rng.below(4) {
            let at = self.rng.below(self.bundles.len());
            let Some(bundle) = self.bundles.get_mut(at) else { return };
            shared.with_stream(&mut self.rng, |stream| bundle.replay(stream, &shared.tools));
        }
    }

    /// Drops a graph, often with replays in flight, or a buffer that its graph goes on with.
    fn dismantle(&mut self, shared: &Shared) {
        if self.bundles.is_empty() {
            return;
        }
        let at = self.rng.below(self.bundles.len());
        if self.rng.once_in(3) {
            let cells = &mut self.bundles[at].cells;
            let cell = self.rng.below(cells.len());
            cells.buffers[cell] = None;
            return;
        }
        let mut bundle = self.bundles.swap_remove(at);
        if self.rng.once_in(2) {
            shared.with_stream(&mut self.rng, |stream| bundle.replay(stream, &shared.tools));
            count(What::DroppedInFlight);
        }
        drop(bundle.graph);
        self.shelf.take_all(bundle.cells);
    }

    /// Opens a window, records some more in the one that is open, or closes it.
    fn window(&mut self, shared: &Shared) {
        if let Some(window) = &mut self.window {
            window.advance(&shared.tools, 1 + self.rng.below(3));
            if window.is_full() || self.rng.once_in(6) {
                let ending = [Ending::End, Ending::End, Ending::Abort, Ending::Drop, Ending::Evict];
                let ending = ending[self.rng.below(ending.len())];
                self.close(shared, ending);
            }
            return;
        }
        let Some(cells) = self.some_cells() else { return };
        let stream = shared.take_stream(&mut self.rng);
        match Window::open(&mut self.rng, stream, &shared.tools, cells) {
            Ok(window) => {
                shared.windows.lock().extend(window.id());
                self.window = Some(window);
            }
            Err((stream, cells)) => {
                shared.streams.lock().push(stream);
                self.shelf.take_all(cells);
            }
        }
    }

    fn close(&mut self, shared: &Shared, ending: Ending) {
        let Some(window) = self.window.take() else { return };
        let id = window.id();
        let (stream, made) = window.close(&shared.tools, ending);
        shared.windows.lock().retain(|open| Some(*open) != id);
        let stream = stream.unwrap_or_else(|| shared.device.stream().unwrap());
        shared.streams.lock().push(stream);
        self.keep(made);
    }

    /// Drops a buffer that slow work of one stream still uses, and gives its bytes to the next buffer of another: what
    /// comes first must not end up in what comes last.
    fn hand_down(&mut self, shared: &Shared) {
        let Some([mut slow, mut home]) = shared.two_streams() else { return };
        let len = if self.rng.once_in(2) { WEIGHTS[self.rng.below(2)] } else { self.rng.size(64 << 10) };
        let late = if self.rng.once_in(3) { Late::Replay } else { Late::Fill };
        let made = handed_down(&mut slow, &mut home, len, late);
        shared.streams.lock().extend([slow, home]);
        if let Some((buffer, model)) = made {
            count(What::HandedDown);
            self.shelf.push(buffer, model, true);
        }
    }

    /// Lets go of something: mostly after a look at all of its bytes, else with work in flight.
    fn retire(&mut self, shared: &Shared) {
        if self.rng.once_in(4) && !self.bundles.is_empty() || self.shelf.len() == 0 {
            return self.dismantle(shared);
        }
        let at = self.rng.below(self.shelf.len());
        let (buffer, model, _) = self.shelf.swap_remove(at);
        let Some(mut buffer) = buffer else { return };
        shared.with_stream(&mut self.rng, |stream| {
            if model.len().is_multiple_of(4) {
                answered("fill", stream.fill(&mut buffer, 0xEE));
            } else {
                same_bytes("the last read", stream.read(&buffer), model.read(&(0..model.len())));
            }
        });
    }

    fn odds_and_ends(&mut self, shared: &Shared) {
        match self.rng.below(16) {
            0..4 => shared.arm(&mut self.rng),
            4..6 => {
                let windows = shared.windows.lock().clone();
                if let Some(window) = self.rng.pick(&windows) {
                    let _ = shared.device.evict(*window);
                }
            }
            6..8 => {
                let synced = shared.with_stream(&mut self.rng, |stream| stream.sync());
                assert!(synced.as_ref().err().is_none_or(is_late), "sync: {synced:?}");
            }
            8 => {
                let cleaned = shared.with_stream(&mut self.rng, |stream| stream.memory_cleanup());
                answered("memory_cleanup", cleaned);
                count(What::Cleanup);
            }
            9 => shared.with_stream(&mut self.rng, |stream| {
                answered("host_call", stream.host_call(std::thread::yield_now));
            }),
            10 => {
                let profiled = shared.with_stream(&mut self.rng, |stream| stream.profile(|_| Ok(())));
                answered("profile", profiled);
            }
            11 => subject::stop_refusing(&shared.device),
            12 => assert!(shared.device.memory_report().to_string().contains("held")),
            _ => shared.compact(&mut self.rng),
        }
    }

    fn bytes(&self) -> usize {
        self.shelf.bytes() + self.bundles.iter().map(|bundle| bundle.cells.bytes()).sum::<usize>()
    }

    /// Reads every byte that it owns.
    pub fn verify(&self, stream: &mut Stream) {
        let cells = self.bundles.iter().map(|bundle| &bundle.cells).chain([&self.shelf]);
        cells.for_each(|cells| cells.verify(stream));
    }
}

impl Shared {
    /// A stream that nobody drives. Who waits here has none, and who has one in a turn gives it back.
    fn take_stream(&self, rng: &mut Rng) -> Stream {
        loop {
            let mut streams = self.streams.lock();
            if !streams.is_empty() {
                let at = rng.below(streams.len());
                return streams.swap_remove(at);
            }
            drop(streams);
            std::thread::yield_now();
        }
    }

    /// Two at once, or none: two threads that have one each would else wait for each other.
    fn two_streams(&self) -> Option<[Stream; 2]> {
        let mut streams = self.streams.lock();
        let first = streams.len().checked_sub(2)?;
        streams.split_off(first).try_into().ok()
    }

    fn with_stream<T>(&self, rng: &mut Rng, f: impl FnOnce(&mut Stream) -> T) -> T {
        let mut stream = self.take_stream(rng);
        let value = f(&mut stream);
        self.streams.lock().push(stream);
        value
    }

    fn compact(&self, rng: &mut Rng) {
        let answer = self.with_stream(rng, |stream| stream.compact());
        if answered("compact", answer).is_some_and(|moved| moved.buffers > 0) {
            count(What::Compaction);
        }
    }

    /// Has one of the driver's next calls refused, whoever makes it.
    fn arm(&self, rng: &mut Rng) {
        // Loading comes once, and a late failure of the device's own is told to whoever reads, not to the caller.
        let calls =
            Call::ALL.into_iter().filter(|call| !matches!(call, Call::Open | Call::Load | Call::Execute));
        let calls: Vec<Call> = calls.collect();
        let severity = if rng.once_in(2) { Severity::Call } else { Severity::Memory };
        let call = if rng.once_in(3) { Call::Allocate } else { calls[rng.below(calls.len())] };
        subject::refuse(&self.device, call, 1 + rng.below(16) as u64, severity);
    }
}

/// What comes late.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Late {
    Fill,
    Replay,
}

/// A buffer of `home` in the bytes of one that `slow` is not done with.
fn handed_down(slow: &mut Stream, home: &mut Stream, len: usize, late: Late) -> Option<(Buffer<u8>, Model)> {
    let mut old = answered("alloc_scratch", home.alloc_scratch::<u8>(len))?;
    let recorded = (late == Late::Replay).then(|| slow.record(|work| work.fill(&mut old, 0xDD)));
    let graph = recorded.and_then(|recorded| answered("a recording", recorded));
    answered("host_call", slow.host_call(|| std::thread::sleep(Duration::from_micros(300))));
    match graph {
        Some((mut graph, ())) => drop(answered("a replay", graph.replay(slow))),
        None => drop(answered("fill", slow.fill(&mut old, 0xDD))),
    }
    drop(old);
    let mut new = answered("alloc_scratch", home.alloc_scratch::<u8>(len))?;
    let (mut model, data) = (Model::unwritten(len), fresh_bytes(len));
    if answered("write", home.write(&mut new, &data)).is_some() {
        model.write(&(0..len)).copy_from_slice(&data);
    }
    Some((new, model))
}
