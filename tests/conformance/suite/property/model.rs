//! The interpreter: one global memory, one list of everything that was ever enqueued, run from its start.
//!
//! It knows no streams, no queues and no driver's order: every entry runs when its turn in program order comes. A
//! failure that the device meets later changes the entry that it hits, and the list is run again. Which of several causes
//! is named is the one thing that may be the device's to say; what it has said holds from then on.

use std::ops::Range;
use std::rc::Rc;

use dacapo::{Abandonment, Call, Error, WindowId};

use super::program::Code;
use super::subject;

/// A root cause, comparable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    Driver(Call),
    Panicked(u32),
    NotReplayed,
    StillRecording(WindowId),
    Abandoned(WindowId, Abandonment),
    Evicted(WindowId),
    NotOpen(WindowId),
    Lengths(usize, usize),
    Unchunkable(usize, usize),
    WrongPhase,
    /// Nothing that the interpreter ever expects.
    Unforeseen(Rc<str>),
}

/// The causes of which one is to blame, without saying which. What shares the list shares the answer.
pub type Suspects = Rc<[Cause]>;

/// An error as a caller sees it: how it is wrapped, and the root cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub how: How,
    pub root: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Itself,
    Tainted,
    /// Tainted by something that is not a root cause, which is never right.
    Nested,
    NeverSealed,
    Doomed,
}

impl Cause {
    pub fn itself(self) -> Told {
        Told { how: How::Itself, root: self }
    }

    /// The only suspect.
    fn alone(self) -> Suspects {
        Rc::new([self])
    }
}

impl Told {
    pub fn of(error: &Error) -> Told {
        let how = match error {
            Error::Tainted { cause } if Told::of(cause).how == How::Itself => How::Tainted,
            Error::Tainted { .. } => How::Nested,
            Error::NeverSealed { .. } => How::NeverSealed,
            Error::Doomed { .. } => How::Doomed,
            _ => How::Itself,
        };
        let number = |message: &str| message.trim_start_matches("no ").parse().unwrap_or(u32::MAX);
        let root = match error.root() {
            Error::Driver { call, .. } => Cause::Driver(*call),
            Error::KernelPanicked { message, .. } | Error::CallbackPanicked { message } => {
                Cause::Panicked(number(message))
            }
            Error::NotReplayed => Cause::NotReplayed,
            Error::StillRecording { window, .. } => Cause::StillRecording(*window),
            Error::Abandoned { window, how } => Cause::Abandoned(*window, *how),
            Error::Evicted { window, .. } => Cause::Evicted(*window),
            Error::NotOpen { window } => Cause::NotOpen(*window),
            Error::LengthMismatch { source_len, target_len, .. } => Cause::Lengths(*source_len, *target_len),
            Error::Unchunkable { len, outer, .. } => Cause::Unchunkable(*len, *outer),
            Error::WrongPhase { .. } => Cause::WrongPhase,
            other => Cause::Unforeseen(format!("{other:?}").into()),
        };
        Told { how, root }
    }
}

/// Bytes of one allocation.
#[derive(Clone, Debug)]
pub struct Span {
    pub alloc: usize,
    pub range: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Reads,
    Writes,
    Both,
}

/// What an operation does to its spans, which come in the order of its arguments.
#[derive(Clone, Debug)]
pub enum Does {
    Launch {
        code: Code,
        scalar: u8,
        number: u32,
    },
    Copy,
    /// Repeats a pattern.
    Fill(Vec<u8>),
    Write(Vec<u8>),
    Read,
    Call {
        counter: usize,
        panics: Option<u32>,
    },
}

#[derive(Clone, Debug)]
pub struct Action {
    pub does: Does,
    pub spans: Vec<(Span, Access)>,
}

impl Action {
    pub fn new(does: Does, spans: Vec<(Span, Access)>) -> Self {
        Action { does, spans }
    }

    fn reads(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter().filter(|(_, access)| *access != Access::Writes).map(|(span, _)| span)
    }

    fn writes(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter().filter(|(_, access)| *access != Access::Reads).map(|(span, _)| span)
    }
}

/// Which of the operations of an entry the device itself fails, among those that would run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    All,
    /// Counted from 1.
    Nth(usize),
}

/// How an entry went onto the device.
#[derive(Clone, Debug)]
pub enum Fate {
    Runs,
    /// It was refused, and only its failure was enqueued.
    Refused(Cause),
    Struck(Strike),
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub stream: usize,
    pub actions: Rc<[Action]>,
    pub fleeting: Rc<Fleeting>,
    pub fate: Fate,
}

/// The allocations that hold nothing from one replay of a graph to the next.
#[derive(Clone, Debug, Default)]
pub struct Fleeting {
    pub own: Vec<usize>,
    /// Of embedded graphs: bytes that several of them may lie in, one after the other, with whatever failure one of
    /// them left there.
    pub inherited: Vec<usize>,
}

/// What became of an entry.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// For each of its operations that did not run, in their order, what may be to blame.
    pub told: Vec<Suspects>,
    /// Causes that arose here.
    pub failures: Vec<Cause>,
}

#[derive(Clone, Debug, PartialEq)]
enum Cell {
    Holds(u8),
    /// Nobody has written it, or only from what nobody had written.
    Anything,
    Tainted(Suspects),
}

/// The memory, and the list that makes it what it is.
#[derive(Default)]
pub struct Machine {
    /// Where each allocation starts in `cells`.
    bases: Vec<usize>,
    size: usize,
    pub log: Vec<Entry>,
    cells: Vec<Cell>,
    outcomes: Vec<Outcome>,
    calls: Vec<usize>,
    unsure: bool,
}

impl Machine {
    pub fn reserve(&mut self, len: usize) -> usize {
        self.bases.push(self.size);
        self.size += len;
        self.cells.resize(self.size, Cell::Anything);
        self.bases.len() - 1
    }

    /// Whether the answer depends on where temporaries lie, which is not for the interpreter to know.
    pub fn is_unsure(&mut self) -> bool {
        self.catch_up();
        self.unsure
    }

    pub fn push(&mut self, entry: Entry) -> usize {
        self.log.push(entry);
        self.log.len() - 1
    }

    /// Changes the fate of an entry, which may have been run already.
    pub fn strike(&mut self, entry: usize, strike: Strike) {
        if !matches!(self.log[entry].fate, Fate::Runs) {
            return;
        }
        self.log[entry].fate = Fate::Struck(strike);
        if entry < self.outcomes.len() {
            self.cells = vec![Cell::Anything; self.size];
            self.outcomes.clear();
            self.calls.clear();
            self.unsure = false;
        }
    }

    pub fn outcome(&mut self, entry: usize) -> &Outcome {
        self.catch_up();
        &self.outcomes[entry]
    }

    pub fn outcomes(&mut self) -> &[Outcome] {
        self.catch_up();
        &self.outcomes
    }

    pub fn calls(&mut self, counter: usize) -> usize {
        self.catch_up();
        self.calls.get(counter).copied().unwrap_or(0)
    }

    /// The bytes of `span`, `None` for one that may be any; or what is to blame: of several causes the one that the device
    /// `named`, which from then on is known to be it.
    pub fn read(&mut self, span: &Span, named: Option<&Cause>) -> Result<Vec<Option<u8>>, Cause> {
        self.catch_up();
        if let Some(suspects) = self.blame(std::iter::once(span)) {
            let cause = suspects.iter().find(|cause| Some(*cause) == named).unwrap_or(&suspects[0]);
            self.learn(&suspects, cause);
            return Err(cause.clone());
        }
        let value = |cell: &Cell| match cell {
            Cell::Holds(byte) => Some(*byte),
            Cell::Anything | Cell::Tainted(_) => None,
        };
        Ok(self.cells[self.place(span)].iter().map(value).collect())
    }

    /// What may be to blame, if a byte of `spans` is tainted.
    fn blame<'s>(&self, spans: impl Iterator<Item = &'s Span>) -> Option<Suspects> {
        let mut met: Vec<&Suspects> = Vec::new();
        for cell in spans.flat_map(|span| &self.cells[self.place(span)]) {
            if let Cell::Tainted(suspects) = cell
                && !met.iter().any(|known| Rc::ptr_eq(known, suspects))
            {
                met.push(suspects);
            }
        }
        if subject::NAMES_THE_FIRST_CAUSE {
            met.truncate(1);
        }
        match met.as_slice() {
            [] => None,
            [only] => Some(Rc::clone(only)),
            several => Some(any_of(several)),
        }
    }

    /// The device has named one of the suspects: bytes name the same cause until they are written again.
    fn learn(&mut self, suspects: &Suspects, cause: &Cause) {
        let known = cause.clone().alone();
        for cell in &mut self.cells {
            if let Cell::Tainted(unsure) = cell
                && Rc::ptr_eq(unsure, suspects)
            {
                *unsure = known.clone();
            }
        }
    }

    fn place(&self, span: &Span) -> Range<usize> {
        let base = self.bases[span.alloc];
        base + span.range.start..base + span.range.end
    }

    fn whole(&self, alloc: usize) -> Range<usize> {
        self.bases[alloc]..self.bases.get(alloc + 1).copied().unwrap_or(self.size)
    }

    /// Whether an action reads bytes of `inherited` before they are written, and which another one may have failed to
    /// write where they lie.
    fn finds_leftovers(&self, action: &Action, inherited: &[usize]) -> bool {
        let found = |cell: fn(&Cell) -> bool, place: Range<usize>| self.cells[place].iter().any(cell);
        let unwritten = action
            .reads()
            .filter(|span| inherited.contains(&span.alloc))
            .any(|span| found(|cell| *cell == Cell::Anything, self.place(span)));
        let tainted = |alloc: &usize| found(|cell| matches!(cell, Cell::Tainted(_)), self.whole(*alloc));
        unwritten && inherited.iter().any(tainted)
    }

    fn catch_up(&mut self) {
        for index in self.outcomes.len()..self.log.len() {
            let entry = self.log[index].clone();
            let Fleeting { own, inherited } = &*entry.fleeting;
            for alloc in own.iter().chain(inherited) {
                let place = self.whole(*alloc);
                self.cells[place].fill(Cell::Anything);
            }
            let mut outcome = Outcome::default();
            let mut ran = 0;
            for action in entry.actions.iter() {
                self.unsure |= !outcome.told.is_empty() && self.finds_leftovers(action, inherited);
                self.perform(action, &entry.fate, &mut ran, &mut outcome);
            }
            self.outcomes.push(outcome);
        }
    }

    fn perform(&mut self, action: &Action, fate: &Fate, ran: &mut usize, outcome: &mut Outcome) {
        if let Fate::Refused(cause) = fate {
            return self.taint(action, &cause.clone().alone(), outcome);
        }
        if let Some(suspects) = self.blame(action.reads()) {
            return self.taint(action, &suspects, outcome);
        }
        *ran += 1;
        let struck = match fate {
            Fate::Struck(Strike::All) => true,
            Fate::Struck(Strike::Nth(nth)) => nth == ran,
            _ => false,
        };
        let failure = if struck { Some(Cause::Driver(Call::Execute)) } else { self.run(action) };
        if let Some(cause) = failure {
            outcome.failures.push(cause.clone());
            self.taint(action, &cause.alone(), outcome);
        }
    }

    fn taint(&mut self, action: &Action, suspects: &Suspects, outcome: &mut Outcome) {
        outcome.told.push(suspects.clone());
        for span in action.writes() {
            let place = self.place(span);
            self.cells[place].fill(Cell::Tainted(suspects.clone()));
        }
    }

    /// Runs an action whose input is whole; returns why it failed.
    fn run(&mut self, action: &Action) -> Option<Cause> {
        let reads_anything =
            action.reads().any(|span| self.cells[self.place(span)].contains(&Cell::Anything));
        let before: Vec<Vec<u8>> = action.spans.iter().map(|(span, _)| self.bytes(span)).collect();
        let after: Vec<Vec<u8>> = match &action.does {
            Does::Launch { code: Code::Panics, number, .. } => return Some(Cause::Panicked(*number)),
            Does::Launch { code, scalar, .. } => launched(*code, *scalar, &before),
            Does::Copy => vec![vec![], before[0].clone()],
            Does::Fill(pattern) => vec![pattern.iter().copied().cycle().take(before[0].len()).collect()],
            Does::Write(data) => vec![data.clone()],
            Does::Read => return None,
            Does::Call { counter, panics } => {
                self.calls.resize(self.calls.len().max(counter + 1), 0);
                self.calls[*counter] += 1;
                return panics.map(Cause::Panicked);
            }
        };
        for ((span, access), after) in action.spans.iter().zip(after) {
            if *access != Access::Reads {
                let place = self.place(span);
                let cells = self.cells[place].iter_mut();
                let made = |byte| if reads_anything { Cell::Anything } else { Cell::Holds(byte) };
                cells.zip(after).for_each(|(cell, byte)| *cell = made(byte));
            }
        }
        None
    }

    /// The bytes of `span`; those of no known value, which nothing is made of, as any.
    fn bytes(&self, span: &Span) -> Vec<u8> {
        let value = |cell: &Cell| match cell {
            Cell::Holds(byte) => *byte,
            Cell::Anything | Cell::Tainted(_) => 0xEE,
        };
        self.cells[self.place(span)].iter().map(value).collect()
    }
}

/// Everybody who is suspected somewhere, once.
fn any_of(several: &[&Suspects]) -> Suspects {
    let mut all: Vec<Cause> = Vec::new();
    for cause in several.iter().flat_map(|suspects| suspects.iter()) {
        if !all.contains(cause) {
            all.push(cause.clone());
        }
    }
    all.into()
}

/// What a kernel makes of its buffers, all at once.
fn launched(code: Code, scalar: u8, before: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let wrap = |values: &[u8], at: usize| values.get(at % values.len().max(1)).copied().unwrap_or(9);
    let plus = |left: u8, right: u8| left.wrapping_add(right);
    let times = |left: u8, right: u8| left.wrapping_mul(right);
    let each = |len: usize, f: &dyn Fn(usize) -> u8| (0..len).map(f).collect::<Vec<u8>>();
    match (code, before) {
        (Code::Add, [x, y]) => vec![vec![], each(y.len(), &|i| plus(wrap(x, i), scalar))],
        (Code::Mix, [x, y, z]) => {
            vec![vec![], vec![], each(z.len(), &|i| plus(times(wrap(x, i), 3), wrap(y, i)))]
        }
        (Code::Bump, [x]) => vec![each(x.len(), &|i| plus(times(x[i], 5), scalar))],
        (Code::Pair, [x, y, z]) => {
            let sum = each(y.len(), &|i| plus(y[i], times(wrap(x, i), 2)));
            vec![vec![], sum, each(z.len(), &|i| wrap(x, i) ^ wrap(y, i))]
        }
        (Code::Sparse, [x]) => {
            vec![each(x.len(), &|i| if i % 2 == 0 { plus(times(x[i], 7), scalar) } else { x[i] })]
        }
        (Code::Rows, [x, y]) => vec![vec![], each(y.len(), &|i| plus(wrap(x, i), times(17, i as u8)))],
        other => unreachable!("no kernel has these arguments: {other:?}"),
    }
}
