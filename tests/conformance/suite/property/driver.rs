//! Runs a program on a device and in the interpreter, line by line, and compares every answer.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use dacapo::{Abandonment, Call, PhaseName};

use super::book::{Book, Refusals};
use super::kernels::{Kernels, Pace};
use super::model::{Access, Action, Cause, Does, Span, Told};
use super::program::{Fresh, LATEST, Leave, Line, Op, Part, Trouble};
use super::streams::{Lane, each, waiting};
use super::subject::{self, Stepper};
use super::support::{Buffer, Device, DeviceOptions, Enqueue, Gate, Graph, Stream, Ticket};

/// Streams fold onto fewer slots, so that some share one.
pub const SLOTS: usize = 3;
pub const STREAMS: usize = 4;

/// Longer than anything takes: a program that hangs fails instead.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Who runs what is enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The program's own steps, and waits.
    Stepped,
    /// The device, whenever it likes.
    Free,
}

/// What differs, or that nothing does.
pub type Verdict<T = ()> = Result<T, String>;

/// A part of a buffer, resolved.
#[derive(Clone, Debug)]
pub struct Chosen {
    pub handle: usize,
    pub start: usize,
    pub end: usize,
}

impl Chosen {
    pub fn len(&self) -> usize {
        self.end - self.start
    }
}

/// What programs run on.
pub enum Bench {
    /// A new device for each.
    Stepped,
    /// One device for all of them.
    Free(Box<(Device, Kernels)>),
}

impl Bench {
    pub fn open(mode: Mode) -> Option<Self> {
        if mode == Mode::Stepped {
            return Some(Bench::Stepped);
        }
        // Nodes run side by side wherever there are cores for it, or not.
        let device = subject::open(subject::side_by_side(options()))?;
        let kernels = Kernels::load(&device, Pace::Yielding).unwrap();
        Some(Bench::Free(Box::new((device, kernels))))
    }
}

fn options() -> DeviceOptions {
    DeviceOptions::new().max_streams(SLOTS)
}

pub struct Driver {
    pub device: Device,
    pub stepper: Option<Stepper>,
    pub kernels: Kernels,
    pub lanes: Vec<Lane>,
    pub buffers: Vec<Option<Buffer<u8>>>,
    pub graphs: Vec<Option<Graph>>,
    /// Of the last replay of each graph that was enqueued: its entry, and how to wait for it.
    pub tickets: Vec<Option<(usize, Ticket)>>,
    pub counters: Vec<Arc<AtomicUsize>>,
    pub book: Book,
    pub numbers: u32,
    /// What ran so far, in words.
    pub trace: Vec<String>,
    pub performed: usize,
    /// What holds a slot up.
    pub gate: Option<Gate>,
}

impl Driver {
    pub fn new(bench: &Bench) -> dacapo::Result<Self> {
        let (device, stepper, kernels) = match bench {
            Bench::Stepped => {
                let (device, stepper) = subject::stepped(options())?;
                let kernels = Kernels::load(&device, Pace::Straight)?;
                (device, Some(stepper), kernels)
            }
            Bench::Free(free) => (free.0.clone(), None, free.1.clone()),
        };
        let mut driver = Driver {
            kernels,
            device,
            stepper,
            lanes: Vec::new(),
            buffers: Vec::new(),
            graphs: Vec::new(),
            tickets: Vec::new(),
            counters: Vec::new(),
            book: Book::new(SLOTS),
            numbers: 0,
            trace: Vec::new(),
            performed: 0,
            gate: None,
        };
        for on in 0..STREAMS {
            let lane = driver.fresh_lane()?;
            driver.lanes.push(if on % 2 == 0 { lane } else { lane.retyped() });
        }
        Ok(driver)
    }

    /// A new stream, idle, in the book as well.
    fn fresh_lane(&mut self) -> dacapo::Result<Lane> {
        let stream = self.device.stream()?;
        let owner = self.book.owner(slot_of(&stream));
        self.book.streams.push(owner);
        Ok(Lane::Idle(stream))
    }

    /// The stream that takes the place of one that was dropped.
    pub fn replace_lane(&mut self, on: usize) -> dacapo::Result<()> {
        let stream = self.device.stream()?;
        self.book.streams[on] = self.book.owner(slot_of(&stream));
        self.lanes[on] = Lane::Idle(stream);
        Ok(())
    }

    pub fn run(&mut self, line: &Line) -> Verdict {
        if !line.op.waits_for_nothing() {
            self.let_go();
        }
        let said = self.trace.len();
        let outcome = self.perform(line);
        subject::forget_refusals(&self.device);
        if self.is_unsure() {
            return Ok(());
        }
        outcome?;
        if self.trace.len() > said {
            self.performed += 1;
        }
        let (held, expected) = (self.device.memory_usage().in_use, self.book.in_use());
        same("bytes in use", &held, &expected)
    }

    /// Whether there is no telling what is right from here on.
    pub fn is_unsure(&mut self) -> bool {
        self.book.machine.is_unsure()
    }

    fn perform(&mut self, line: &Line) -> Verdict {
        let trouble = line.trouble.filter(|_| subject::REFUSES);
        match line.op {
            Op::Alloc { on, len, fresh } => self.alloc(on.into(), len.into(), fresh, trouble),
            Op::Split { buffer, at } => self.split(buffer, at),
            Op::DropBuffer { buffer } => self.drop_buffer(buffer),
            Op::Write { on, to, seed } => self.write(on.into(), to, seed, trouble),
            Op::Fill { on, to, value } => self.fill(on.into(), to, value, trouble),
            Op::FillWords { on, to, value } => self.fill_words(on.into(), to, value, trouble),
            Op::Copy { on, from, to, uneven } => self.copy(on.into(), from, to, uneven, trouble),
            Op::Launch { on, code, ins, outs, scalar } => {
                self.launch(on.into(), code, ins, outs, scalar, trouble)
            }
            Op::HostCall { on, calls } => self.host_call(on.into(), calls, trouble),
            Op::Read { on, from } => self.read(on.into(), from, trouble),
            Op::Sync { on } => self.sync(on.into(), trouble),
            Op::Advance { on, share, order } => self.advance(on.into(), share, order, trouble),
            Op::Leave { on, how } => self.leave(on.into(), how),
            Op::Misorder { on, transition } => self.misorder(on.into(), transition),
            Op::Evict { on } => self.evict(on.into()),
            Op::Retype { on } => self.retype(on.into()),
            Op::Replay { on, graph } => self.replay(on.into(), graph, trouble),
            Op::Embed { on, graph } => self.embed(on.into(), graph, trouble),
            Op::DropGraph { graph } => self.drop_graph(graph),
            Op::Await { graph } => self.wait_ticket(graph, trouble),
            Op::Cleanup { on } => self.cleanup(on.into()),
            Op::Compact { on } => self.compact(on.into()),
            Op::Hold { on } => self.hold(on.into()),
            Op::Step { on, times } => self.step(on.into(), times),
            Op::StepFailing { on, node } => self.step_failing(on.into(), node),
        }
    }

    pub fn say(&mut self, words: impl FnOnce() -> String) {
        let words = words();
        self.trace.push(words);
    }

    /// Tells the driver to refuse a call, as `trouble` says of an operation whose own call is `own`.
    pub fn arm(&mut self, trouble: Option<Trouble>, own: Call) {
        let call = match trouble {
            None => return,
            Some(Trouble::Own) => own,
            // When another slot's work passes is up to its worker, and so is whether there is a wait.
            Some(Trouble::Wait) if self.stepper.is_none() => return,
            Some(Trouble::Wait) => Call::Wait,
            Some(Trouble::Allocate) => Call::Allocate,
            Some(Trouble::Synchronize) => Call::Synchronize,
        };
        subject::refuse_nth(&self.device, call, 1);
        self.say(|| format!("(the next one is refused: {call})"));
    }

    /// What the interpreter is told of it. Waits and allocations are made where the state of the device calls for
    /// them, so that the answer itself says whether one was.
    pub fn refusals<T>(trouble: Option<Trouble>, own: Call, answer: &Result<T, Told>) -> Refusals {
        let seen = |call: Call| {
            let refused = Cause::Driver(call).itself();
            answer.as_ref().err().filter(|told| **told == refused).map(|told| told.root.clone())
        };
        match trouble {
            Some(Trouble::Own) => Refusals { own: Some(own), seen: None },
            Some(Trouble::Wait) => Refusals { own: None, seen: seen(Call::Wait) },
            Some(Trouble::Allocate) => Refusals { own: None, seen: seen(Call::Allocate) },
            Some(Trouble::Synchronize) | None => Refusals::default(),
        }
    }

    /// The live buffer that a part picks, other than those in `but`.
    pub fn choose(&self, part: Part, but: &[usize]) -> Option<Chosen> {
        let live = |handle: &usize| self.buffers[*handle].is_some() && !but.contains(handle);
        let live: Vec<usize> = (0..self.buffers.len()).filter(live).collect();
        // Half of the picks mean a young buffer: what belongs together meets, and recordings drop what they bore.
        let young = if part.buffer < 128 { 0 } else { live.len().saturating_sub(3) };
        let among = live.get(young..)?;
        let handle = *among.get(usize::from(part.buffer) % among.len().max(1))?;
        let len = self.buffers[handle].as_ref()?.len();
        let (start, end) = match part.cut {
            None => (0, len),
            Some((start, take)) => {
                let start = usize::from(start) % (len + 1);
                (start, start + usize::from(take) % (len - start + 1))
            }
        };
        Some(Chosen { handle, start, end })
    }

    pub fn span(&self, chosen: &Chosen) -> Span {
        let handle = self.book.handles[chosen.handle].as_ref();
        let (alloc, first) = handle.map_or((0, 0), |handle| (handle.alloc, handle.start));
        Span { alloc, range: first + chosen.start..first + chosen.end }
    }

    pub fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    fn read(&mut self, on: usize, from: Part, trouble: Option<Trouble>) -> Verdict {
        let Some(from) = self.choose(from, &[]) else { return Ok(()) };
        self.read_chosen(on, &from, trouble)
    }

    pub fn read_chosen(&mut self, on: usize, from: &Chosen, trouble: Option<Trouble>) -> Verdict {
        if matches!(self.lanes[on], Lane::Recording(_)) {
            return Ok(());
        }
        self.arm(trouble, Call::Read);
        self.say(|| format!("s{on}.read({from})"));
        let Some(buffer) = &self.buffers[from.handle] else { return Ok(()) };
        let slice = buffer.slice(from.start..from.end).map_err(|error| error.to_string())?;
        let answer = waiting!(&mut self.lanes[on], stream => stream.read_timeout(slice, PATIENCE));
        let Some(answer) = answer else { return Ok(()) };
        let answer = answer.map_err(|error| Told::of(&error));
        let span = self.span(from);
        let expected = if self.book.records(on) {
            Err(Cause::WrongPhase.itself())
        } else {
            let refusals = Self::refusals(trouble, Call::Read, &answer);
            let named = answer.as_ref().err().map(|told| &told.root);
            self.book.read(on, &span, &refusals, trouble != Some(Trouble::Synchronize), named)
        };
        // What the device finds is right wherever anything is.
        let found = |at: usize| answer.as_ref().ok().and_then(|bytes| bytes.get(at).copied()).unwrap_or(0);
        let expected = expected.map(|bytes| {
            bytes.iter().enumerate().map(|(at, byte)| byte.unwrap_or_else(|| found(at))).collect::<Vec<u8>>()
        });
        same("read", &answer, &expected)
    }

    fn sync(&mut self, on: usize, trouble: Option<Trouble>) -> Verdict {
        if matches!(self.lanes[on], Lane::Recording(_)) {
            return Ok(());
        }
        self.arm(trouble, Call::Synchronize);
        self.say(|| format!("s{on}.sync()"));
        let answer = waiting!(&mut self.lanes[on], stream => stream.sync_timeout(PATIENCE));
        let Some(answer) = answer else { return Ok(()) };
        let answer = answer.map_err(|error| Told::of(&error));
        if self.book.records(on) {
            return same("sync", &answer, &Err(Cause::WrongPhase.itself()));
        }
        if let Err(told) = self.book.check(on) {
            return same("sync", &answer, &Err(told));
        }
        if matches!(trouble, Some(Trouble::Own | Trouble::Synchronize)) {
            return same("sync", &answer, &Err(Cause::Driver(Call::Synchronize).itself()));
        }
        // Nodes of one graph may run side by side on workers: any of its failures may come first there.
        let mut failures = self.book.sync(on);
        if self.stepper.is_some() {
            failures.truncate(1);
        }
        one_of("sync", &answer, &failures)
    }

    fn cleanup(&mut self, on: usize) -> Verdict {
        let Lane::Idle(stream) = &mut self.lanes[on] else { return Ok(()) };
        let answer = stream.memory_cleanup().map_err(|error| Told::of(&error));
        self.say(|| format!("s{on}.memory_cleanup()"));
        same("memory_cleanup", &answer, &Ok(()))
    }

    pub fn leave(&mut self, on: usize, how: Leave) -> Verdict {
        let phase = self.lanes[on].phase();
        let lane = self.lanes[on].take();
        self.say(|| format!("s{on}: {how:?} of the {phase:?} stream"));
        match (how, lane) {
            (Leave::Call, Lane::Prepared(stream)) => self.lanes[on] = Lane::Idle(stream.cancel()),
            (Leave::Call, Lane::Recording(stream)) => self.lanes[on] = Lane::Idle(stream.abort()),
            (Leave::Call, Lane::Any(mut any)) => {
                let answer = match phase {
                    PhaseName::Prepared => any.cancel(),
                    PhaseName::Recording => any.abort(),
                    _ => Ok(()),
                };
                self.lanes[on] = Lane::Any(any);
                same("leave", &answer.map_err(|error| Told::of(&error)), &Ok(()))?;
            }
            (Leave::Call, lane) => self.lanes[on] = lane,
            (Leave::Drop, lane) => {
                drop(lane);
                self.book.leave(on, Abandonment::Dropped);
                return self.replace_lane(on).map_err(|error| error.to_string());
            }
        }
        self.book.leave(on, Abandonment::Aborted);
        Ok(())
    }

    fn drop_buffer(&mut self, buffer: u8) -> Verdict {
        let Some(chosen) = self.choose(Part { buffer, cut: None }, &[]) else { return Ok(()) };
        self.say(|| format!("drop(b{})", chosen.handle));
        self.buffers[chosen.handle] = None;
        self.book.handles[chosen.handle] = None;
        Ok(())
    }

    fn split(&mut self, buffer: u8, at: u8) -> Verdict {
        let Some(chosen) = self.choose(Part { buffer, cut: None }, &[]) else { return Ok(()) };
        let at = usize::from(at) % (chosen.len() + 1);
        let Some(whole) = &mut self.buffers[chosen.handle] else { return Ok(()) };
        let rest = whole.split_off(at).map_err(|error| error.to_string())?;
        let new = self.buffers.len();
        self.buffers.push(Some(rest));
        self.book.split(chosen.handle, at);
        self.say(|| format!("b{new} = b{}.split_off({at})", chosen.handle));
        Ok(())
    }

    fn alloc(&mut self, on: usize, len: usize, fresh: Fresh, trouble: Option<Trouble>) -> Verdict {
        // Scratch has no call to itself but the pool's.
        let scratch = matches!(fresh, Fresh::Filled(_) | Fresh::Scratch) && trouble == Some(Trouble::Own);
        let (trouble, own) = (if scratch { Some(Trouble::Allocate) } else { trouble }, Call::Fill);
        self.arm(trouble, own);
        let new = self.buffers.len();
        self.say(|| format!("b{new} = s{on}.alloc({len}) {fresh:?}"));
        let answer = self.make(on, len, fresh).map_err(|error| Told::of(&error));
        let refusals = Self::refusals(trouble, own, &answer);
        let expected = self.book.alloc(on, len, fresh, &refusals);
        if let Ok(buffer) = answer {
            same("alloc", &Ok(()), &expected.as_ref().map(drop).map_err(Clone::clone))?;
            self.buffers.push(Some(buffer));
            let Ok(alloc) = expected else { return Ok(()) };
            self.book.own(alloc, len);
            if let Fresh::Filled(value) = fresh {
                subject::forget_refusals(&self.device);
                let chosen = Chosen { handle: new, start: 0, end: len };
                return self.fill_chosen(on, &chosen, value, None);
            }
            return Ok(());
        }
        same("alloc", &answer.map(drop), &expected.map(drop))
    }

    fn make(&mut self, on: usize, len: usize, fresh: Fresh) -> dacapo::Result<Buffer<u8>> {
        match (fresh, &mut self.lanes[on]) {
            (Fresh::Dedicated, Lane::Idle(stream)) => {
                stream.allocating(dacapo::AllocationMode::Dedicated, |work| work.alloc(len))
            }
            (Fresh::Filled(_) | Fresh::Scratch, lane) => each!(lane, stream => stream.alloc_scratch(len)),
            (_, lane) => each!(lane, stream => stream.alloc(len)),
        }
    }

    /// A span as an argument.
    pub fn argument(&self, chosen: &Chosen, access: Access) -> (Span, Access) {
        (self.span(chosen), access)
    }

    /// Compares the answer of something that was enqueued.
    pub fn enqueued(
        &mut self,
        on: usize,
        (does, spans): (Does, Vec<(Span, Access)>),
        problem: Option<Told>,
        (trouble, own): (Option<Trouble>, Call),
        answer: dacapo::Result<()>,
    ) -> Verdict {
        let answer = answer.map_err(|error| Told::of(&error));
        let refusals = Self::refusals(trouble, own, &answer);
        let expected = self.book.enqueue(on, Action::new(does, spans), problem, &refusals);
        same("the operation", &answer, &expected.map(drop))
    }

    /// The graph that a pick means.
    pub fn graph(&self, pick: u8) -> Option<(usize, Rc<super::book::Sealed>)> {
        let live: Vec<usize> = (0..self.graphs.len()).filter(|graph| self.graphs[*graph].is_some()).collect();
        let latest = live.len().saturating_sub(1);
        let at = if pick == LATEST { latest } else { usize::from(pick) % live.len().max(1) };
        let graph = *live.get(at)?;
        Some((graph, self.book.graphs[graph].clone()?))
    }
}

fn slot_of(stream: &Stream) -> usize {
    stream.id().index() as usize % SLOTS
}

impl std::fmt::Display for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b{}[{}..{}]", self.handle, self.start, self.end)
    }
}

/// Whether the device names one of the causes, if there is any.
pub fn one_of(what: &str, device: &Result<(), Told>, causes: &[Cause]) -> Verdict {
    match device {
        Ok(()) if causes.is_empty() => Ok(()),
        Err(told) if causes.iter().any(|cause| *told == cause.clone().itself()) => Ok(()),
        _ => Err(format!(
            "{what}: the device says {device:?}, and the interpreter that it is one of {causes:?}"
        )),
    }
}

/// Whether the device and the interpreter say the same.
pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, device: &T, model: &T) -> Verdict {
    if device == model {
        return Ok(());
    }
    Err(format!("{what}: the device says {device:?}, and the interpreter {model:?}"))
}
