//! A program that does a little of everything, on two streams of two slots.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use dacapo::prelude::*;
use dacapo::{AllocationMode, ReadFuture, Result, Ticket};

use super::log::{Cell, End, Log, Manner, Part};
use super::support_objects::{Kernels, N, grid};

/// Elements of a buffer that has a page to itself.
const LARGE: usize = 160 << 10;

/// Where a program runs.
pub struct Place<'d> {
    pub device: &'d Device,
    /// Runs what is queued, where nothing runs by itself.
    pub settle: &'d dyn Fn(),
    /// Held by the recorded callback: whoever lets go of it has let go of the graph.
    pub token: &'d Arc<()>,
}

/// Runs the program once; everything that it made is dropped when it returns.
pub fn run(place: &Place<'_>, manner: Manner) -> Log {
    let mut log = Log::new(manner);
    let _ = everything(place, &mut log);
    log
}

fn everything(place: &Place<'_>, log: &mut Log) -> Result<(), End> {
    let k = log.need("load", Kernels::try_load(place.device))?;
    let mut a = log.need("stream", place.device.stream())?;
    let mut b = log.need("stream", place.device.stream())?;
    let mut cells = Cells::make(log, &mut a, &mut b)?;
    memory(log, &mut a)?;
    cells.eager(log, &k, &mut a, &mut b)?;
    let (captured, mut a) = capture(log, &k, a, &mut cells, place.token)?;
    if let Some(captured) = captured {
        replay(place, log, captured, &mut cells, (&mut a, &mut b))?;
    }
    tables(place, log, &mut a, &mut cells)?;
    cells.refresh(log, &k, &mut a, &mut b)?;
    finish(log, &mut a, &mut b)
}

/// The buffers of the program.
struct Cells {
    x: Cell,
    y: Cell,
    written: Cell,
    copied: Cell,
    counter: Cell,
    /// Of the other slot.
    far: Cell,
}

impl Cells {
    fn make(log: &mut Log, a: &mut Stream, b: &mut Stream) -> Result<Self, End> {
        let dedicated = AllocationMode::Dedicated;
        Ok(Cells {
            x: log.cell("alloc", a.alloc(N))?,
            y: log.cell("alloc", a.alloc(N))?,
            written: log.cell("alloc", a.alloc(N))?,
            copied: log.cell("alloc dedicated", a.allocating(dedicated, |w| w.alloc(N)))?,
            counter: log.cell("alloc", a.alloc(N))?,
            far: log.cell("alloc", b.alloc(N))?,
        })
    }

    /// Work of every kind on both slots, which wait for each other.
    fn eager(&mut self, log: &mut Log, k: &Kernels, a: &mut Stream, b: &mut Stream) -> Result<(), End> {
        self.x.write(log, a, 3)?;
        self.counter.fill(log, b, 10)?;
        let launched = b.launch(&k.mul2, grid(), (&self.x.buffer, &mut self.far.buffer));
        self.far.launched(log, launched, &[&self.x], |x| 2 * x[0])?;
        self.x.write(log, a, 4)?;
        self.y.copy(log, a, &self.far)?;
        let launched = a.launch(&k.inc, grid(), (&mut self.y.buffer,));
        self.y.holds = log.met("launch", launched)?.and(self.y.holds).map(|y| y + 1);
        log.read(a, &self.y)?;
        let profiled = a.profile(|w| w.launch(&k.set, grid(), (&mut self.written.buffer, 8)));
        self.written.holds = log.met("profile", profiled)?.map(|_| 8);
        // Where only the stamp after the launch was refused, the launch ran all the same.
        if self.written.holds.is_some() { log.read(b, &self.written) } else { self.written.fill(log, b, 8) }
    }

    /// What a replay leaves behind.
    fn replayed(&mut self, ran: Option<()>) {
        self.y.holds = ran.and(self.x.holds).map(|x| x + 71);
        self.written.holds = ran.map(|()| 70);
        self.copied.holds = ran.map(|()| 5);
        self.counter.holds = ran.and(self.counter.holds).map(|c| c + 1);
    }

    /// Everything is written anew, so that nothing of an earlier failure may be left.
    fn refresh(&mut self, log: &mut Log, k: &Kernels, a: &mut Stream, b: &mut Stream) -> Result<(), End> {
        self.x.write(log, b, 20)?;
        let launched = a.launch(&k.add1, grid(), (&self.x.buffer, &mut self.y.buffer));
        self.y.launched(log, launched, &[&self.x], |x| x[0] + 1)?;
        self.counter.fill(log, a, 30)?;
        let launched =
            b.launch(&k.sum, grid(), (&self.x.buffer, &self.counter.buffer, &mut self.copied.buffer));
        self.copied.launched(log, launched, &[&self.x, &self.counter], |of| of[0] + of[1])?;
        let mut into = [0; N];
        let read = a.read_into(&self.copied.buffer, &mut into);
        log.landed("read_into", read.map(|()| into.to_vec()), self.copied.holds)?;
        [&self.x, &self.y, &self.counter, &self.far].into_iter().try_for_each(|cell| log.read(b, cell))
    }
}

/// Pages of every kind come and go, and what is left of two is moved to one.
fn memory(log: &mut Log, a: &mut Stream) -> Result<(), End> {
    let large = log.met("alloc large", a.alloc_scratch::<u32>(LARGE))?;
    let kept = log.met("alloc kept", a.alloc_scratch::<u32>(LARGE))?;
    drop(large);
    log.met("cleanup", a.memory_cleanup())?;
    drop(kept);
    log.met("cleanup", a.memory_cleanup())?;
    let persistent = a.allocating(AllocationMode::Persistent, |w| w.alloc::<u32>(N));
    drop(log.met("alloc persistent", persistent)?);
    let mut left = Part::spread(log, a)?;
    log.met("compact", a.compact())?;
    left.iter_mut().try_for_each(|part| part.check(log, a))
}

/// What comes of a window.
struct Captured {
    graph: Graph,
    /// Born in the window; every replay sets it to `x`.
    born: Cell,
    /// How often the recorded callback was called.
    calls: Arc<AtomicU32>,
}

/// A warm-up and a window with everything that can be recorded.
fn capture(
    log: &mut Log,
    k: &Kernels,
    mut a: Stream,
    cells: &mut Cells,
    token: &Arc<()>,
) -> Result<(Option<Captured>, Stream), End> {
    let child = a.record(|w| w.launch(&k.inc, grid(), (&mut cells.counter.buffer,)));
    let mut child = log.met("record", child)?.map(|(child, ())| child);
    let mut warm = match a.prepare() {
        Ok(warm) => warm,
        Err(refused) => {
            let (a, error) = refused.into_parts();
            log.met("prepare", Err::<(), _>(error))?;
            return Ok((None, a));
        }
    };
    let launched = warm.launch(&k.add1, grid(), (&cells.x.buffer, &mut cells.y.buffer));
    cells.y.launched(log, launched, &[&cells.x], |x| x[0] + 1)?;
    let read = warm.read(&cells.y.buffer);
    log.landed("read", read, cells.y.holds)?;
    let mut open = match warm.begin() {
        Ok(open) => open,
        Err(refused) => {
            let (a, error) = refused.into_parts();
            log.met("begin", Err::<(), _>(error))?;
            return Ok((None, a));
        }
    };
    let calls = Arc::new(AtomicU32::new(0));
    let (held, called) = (token.clone(), calls.clone());
    let born = window(&mut open, k, cells, child.as_mut(), move || {
        let _held = &held;
        called.fetch_add(1, Ordering::Relaxed);
    });
    let born = log.met("window", born)?;
    match open.end() {
        Ok((graph, a)) => {
            let born = born.map(|buffer| Cell { buffer, holds: None });
            Ok((born.map(|born| Captured { graph, born, calls }), a))
        }
        Err(refused) => {
            let (mut a, error) = refused.into_parts();
            log.met("end", Err::<(), _>(error))?;
            if let Some(buffer) = born {
                log.read(&mut a, &Cell { buffer, holds: None })?;
            }
            Ok((None, a))
        }
    }
}

/// Records `y = x + 71`, `written = 70`, `copied = 5`, `counter += 1`; returns a buffer that each replay sets to `x`.
fn window(
    w: &mut Stream<Recording>,
    k: &Kernels,
    cells: &mut Cells,
    child: Option<&mut Graph>,
    call: impl FnMut() + Send + 'static,
) -> Result<Buffer<u32>> {
    let x = &cells.x.buffer;
    let (mut tmp, zeros) = (w.alloc::<u32>(N)?, w.alloc::<u32>(N)?);
    let mut born = w.alloc::<u32>(N)?;
    w.launch(&k.add1, grid(), (x, &mut tmp))?;
    w.write(&mut cells.written.buffer, &[70; N])?;
    w.launch(&k.sum, grid(), (&tmp, &cells.written.buffer, &mut cells.y.buffer))?;
    let mut scratch = w.alloc_scratch::<u32>(N)?;
    w.fill(&mut scratch, 5)?;
    w.copy(&scratch, &mut cells.copied.buffer)?;
    match child {
        Some(child) => w.embed(child)?,
        None => w.launch(&k.inc, grid(), (&mut cells.counter.buffer,))?,
    }
    w.host_call(call)?;
    w.launch(&k.sum, grid(), (x, &zeros, &mut born))?;
    Ok(born)
}

/// Replays on both slots, reads in every way, and drops the graph with a replay in flight.
fn replay(
    place: &Place<'_>,
    log: &mut Log,
    captured: Captured,
    cells: &mut Cells,
    (a, b): (&mut Stream, &mut Stream),
) -> Result<(), End> {
    let Captured { mut graph, mut born, calls } = captured;
    let mut replays = 0;
    let mut once = |log: &mut Log, s: &mut Stream, cells: &mut Cells, born: &mut Cell| {
        let ticket: Option<Ticket> = log.met("replay", graph.replay(s))?;
        let ran = ticket.as_ref().map(|_| replays += 1);
        cells.replayed(ran);
        born.holds = ran.and(cells.x.holds);
        Ok(ticket)
    };
    let first = once(log, a, cells, &mut born)?;
    log.read(a, &cells.y)?;
    cells.x.write(log, b, 6)?;
    let second = once(log, b, cells, &mut born)?;
    let early = log.met("read_async", a.read_async(&cells.y.buffer))?;
    for cell in [&born, &cells.written, &cells.copied, &cells.counter] {
        log.read(a, cell)?;
    }
    for ticket in first.iter().chain(&second) {
        log.met("wait", ticket.wait())?;
    }
    (place.settle)();
    if let Some(mut future) = early {
        let landed = resolve(&mut future);
        log.landed("read_async", landed, cells.y.holds)?;
    }
    drop(once(log, b, cells, &mut born)?);
    // Nobody ever looks at this one.
    drop(log.met("read_async", b.read_async(&cells.counter.buffer))?);
    drop(graph);
    for cell in [&born, &cells.y, &cells.counter] {
        log.read(a, cell)?;
    }
    assert!(calls.load(Ordering::Relaxed) <= replays, "a callback was called without a replay");
    Ok(())
}

/// What a future gives whose work is done, or is being done by others.
fn resolve(future: &mut ReadFuture<u32>) -> Result<Vec<u32>> {
    loop {
        match Pin::new(&mut *future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

/// Launches that bring tables along, and a recording with one that is known and one that is new.
fn tables(place: &Place<'_>, log: &mut Log, a: &mut Stream, cells: &mut Cells) -> Result<(), End> {
    let pick = Program::<(Uniform<u32>, Out<u32>)>::new("pick").host(|(table, out), _| out.fill(table[1]));
    let pick = log.need("load", pick.load(place.device))?;
    for table in [[1, 41], [2, 42], [1, 41]] {
        let launched = a.launch(&pick, grid(), (&table, &mut cells.y.buffer));
        cells.y.launched(log, launched, &[], |_| table[1])?;
        log.read(a, &cells.y)?;
    }
    let recorded = a.record(|w| {
        w.launch(&pick, grid(), (&[1, 41], &mut cells.y.buffer))?;
        w.launch(&pick, grid(), (&[3, 43], &mut cells.copied.buffer))
    });
    let Some((mut graph, ())) = log.met("record", recorded)? else { return Ok(()) };
    let ran = log.met("replay", graph.replay(a))?.map(drop);
    (cells.y.holds, cells.copied.holds) = (ran.map(|()| 41), ran.map(|()| 43));
    drop(graph);
    [&cells.y, &cells.copied].into_iter().try_for_each(|cell| log.read(a, cell))
}

/// Waits for everything; what no call could report before comes out here.
fn finish(log: &mut Log, a: &mut Stream, b: &mut Stream) -> Result<(), End> {
    log.met("host_call", b.host_call(|| {}))?;
    for s in [a, b] {
        log.met("sync", s.sync())?;
        log.met("cleanup", s.memory_cleanup())?;
    }
    Ok(())
}
