//! What the interpreter knows beside memory: handles, phases, recordings, graphs; and what each call must answer.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dacapo::{Abandonment, Call, PhaseName, WindowId};

use super::model::{Access, Action, Cause, Does, Entry, Fate, Fleeting, How, Machine, Span, Told};
use super::program::Fresh;

/// A buffer of the user's: a part of an allocation.
#[derive(Clone, Debug)]
pub struct Handle {
    pub alloc: usize,
    pub start: usize,
    pub len: usize,
}

#[derive(Clone, Debug, PartialEq)]
enum Home {
    Placed,
    Recording(WindowId),
    Dead(Cause),
}

struct Alloc {
    len: usize,
    home: Home,
}

/// A graph: the list that every replay runs, and the allocations that it keeps alive.
pub struct Sealed {
    pub actions: Rc<[Action]>,
    fleeting: Rc<Fleeting>,
    members: BTreeSet<usize>,
    arena: Option<usize>,
}

#[derive(Default)]
struct Recording {
    actions: Vec<Action>,
    touched: BTreeSet<usize>,
    born: Vec<usize>,
    /// Temporaries of embedded graphs.
    inherited: Vec<usize>,
    doom: Option<Told>,
}

/// A stream's phase, and its window.
pub struct Owner {
    pub phase: PhaseName,
    pub slot: usize,
    pub window: Option<WindowId>,
    pub evicted: bool,
    recording: Recording,
    share: Option<Rc<Sealed>>,
    /// Failures of entries before this one have been reported.
    asked: usize,
}

/// Which call of the driver's is to fail, and which one was seen to fail.
#[derive(Clone, Debug, Default)]
pub struct Refusals {
    /// The operation's own call: met if and only if it is made.
    pub own: Option<Call>,
    /// A call that is made only where the state of the device calls for it, and that failed.
    pub seen: Option<Cause>,
}

#[derive(Default)]
pub struct Book {
    pub machine: Machine,
    allocs: Vec<Alloc>,
    pub handles: Vec<Option<Handle>>,
    pub graphs: Vec<Option<Rc<Sealed>>>,
    pub streams: Vec<Owner>,
    /// Per slot, everything that was enqueued on it.
    pub queued: Vec<Vec<usize>>,
    /// Entries that are no replays.
    singles: BTreeSet<usize>,
    /// The lists of graphs that are whole.
    wholes: Vec<Rc<[Action]>>,
}

const ALIGNMENT: usize = 256;

impl Book {
    pub fn new(slots: usize) -> Self {
        Book { queued: vec![Vec::new(); slots], ..Book::default() }
    }

    pub fn owner(&self, slot: usize) -> Owner {
        Owner {
            phase: PhaseName::NoCapture,
            slot,
            window: None,
            evicted: false,
            recording: Recording::default(),
            share: None,
            asked: self.machine.log.len(),
        }
    }

    /// `Evicted`, once somebody evicted the stream's window.
    pub fn check(&self, on: usize) -> Result<(), Told> {
        let owner = &self.streams[on];
        match owner.window {
            Some(window) if owner.evicted => Err(Cause::Evicted(window).itself()),
            _ => Ok(()),
        }
    }

    pub fn records(&self, on: usize) -> bool {
        self.streams[on].phase == PhaseName::Recording
    }

    /// A fresh allocation, zeroed unless it is scratch.
    pub fn alloc(&mut self, on: usize, len: usize, fresh: Fresh, refusals: &Refusals) -> Result<usize, Told> {
        let scratch = matches!(fresh, Fresh::Filled(_) | Fresh::Scratch);
        self.check(on)?;
        if let Some(cause @ Cause::Driver(Call::Allocate)) = &refusals.seen
            && !self.records(on)
        {
            return Err(cause.clone().itself());
        }
        let alloc = self.bear(on, len)?;
        if !scratch && len > 0 {
            let span = Span { alloc, range: 0..len };
            let zeroing = Action::new(Does::Fill(vec![0]), vec![(span, Access::Writes)]);
            self.enqueue(on, zeroing, None, refusals)?;
        }
        Ok(alloc)
    }

    /// A handle of all of `alloc`.
    pub fn own(&mut self, alloc: usize, len: usize) {
        self.handles.push(Some(Handle { alloc, start: 0, len }));
    }

    pub fn split(&mut self, handle: usize, at: usize) {
        let rest = self.handles[handle].as_mut().map(|whole| {
            let rest = Handle { alloc: whole.alloc, start: whole.start + at, len: whole.len - at };
            whole.len = at;
            rest
        });
        self.handles.push(rest);
    }

    /// An allocation born where `on` is.
    fn bear(&mut self, on: usize, len: usize) -> Result<usize, Told> {
        self.check(on)?;
        let owner = &mut self.streams[on];
        let mut home = Home::Placed;
        let alloc = self.machine.reserve(len);
        if owner.phase == PhaseName::Recording {
            owner.recording.refuse_if_doomed()?;
            owner.recording.born.push(alloc);
            owner.recording.touched.insert(alloc);
            home = owner.window.map_or(Home::Placed, Home::Recording);
        }
        // What has no bytes needs no memory, in whichever state its recording ends.
        let home = if len == 0 { Home::Placed } else { home };
        while self.allocs.len() <= alloc {
            self.allocs.push(Alloc { len, home: home.clone() });
        }
        Ok(alloc)
    }

    /// Enqueues or records `action`, with what is wrong with its arguments; returns its place in the log.
    pub fn enqueue(
        &mut self,
        on: usize,
        action: Action,
        problem: Option<Told>,
        refusals: &Refusals,
    ) -> Result<Option<usize>, Told> {
        self.check(on)?;
        if self.records(on) {
            self.record(on, action, problem)?;
            return Ok(None);
        }
        let unready = action.spans.iter().find_map(|(span, _)| self.unready(span.alloc, None));
        let problem = problem.or(unready).or_else(|| refusals.seen.clone().map(Cause::itself));
        let problem = problem.or_else(|| refusals.own.map(|call| Cause::Driver(call).itself()));
        self.singles.insert(self.machine.log.len());
        self.log(on, Rc::new([action]), Rc::default(), problem).map(Some)
    }

    fn record(&mut self, on: usize, action: Action, problem: Option<Told>) -> Result<(), Told> {
        self.streams[on].recording.refuse_if_doomed()?;
        let window = self.streams[on].window;
        let unready = || action.spans.iter().find_map(|(span, _)| self.unready(span.alloc, window));
        let problem = problem.or_else(unready);
        let recording = &mut self.streams[on].recording;
        if let Some(told) = problem {
            recording.doom = Some(told.clone());
            return Err(told);
        }
        recording.touched.extend(action.spans.iter().map(|(span, _)| span.alloc));
        recording.actions.push(action);
        Ok(())
    }

    /// Why an operation may not use `alloc`, if it may not.
    fn unready(&self, alloc: usize, inside: Option<WindowId>) -> Option<Told> {
        match &self.allocs[alloc].home {
            Home::Placed => None,
            Home::Recording(window) if Some(*window) == inside => None,
            Home::Recording(window) => Some(Cause::StillRecording(*window).itself()),
            Home::Dead(cause) => Some(Told { how: How::NeverSealed, root: cause.clone() }),
        }
    }

    fn log(
        &mut self,
        on: usize,
        actions: Rc<[Action]>,
        fleeting: Rc<Fleeting>,
        problem: Option<Told>,
    ) -> Result<usize, Told> {
        let fate = problem.as_ref().map_or(Fate::Runs, |told| Fate::Refused(told.root.clone()));
        let entry = self.machine.push(Entry { stream: on, actions, fleeting, fate });
        self.queued[self.streams[on].slot].push(entry);
        match problem {
            Some(told) => Err(told),
            None => Ok(entry),
        }
    }

    /// A replay, or the embedding of a graph in what executes.
    pub fn replay(&mut self, on: usize, graph: &Sealed, refusals: &Refusals) -> Result<usize, Told> {
        self.check(on)?;
        if self.records(on) {
            return Err(Cause::WrongPhase.itself());
        }
        let refused = refusals.seen.clone().or(refusals.own.map(Cause::Driver));
        self.log(on, graph.actions.clone(), graph.fleeting.clone(), refused.map(Cause::itself))
    }

    pub fn embed(&mut self, on: usize, graph: &Sealed, refusals: &Refusals) -> Result<(), Told> {
        self.check(on)?;
        if !self.records(on) {
            return self.replay(on, graph, refusals).map(drop);
        }
        self.streams[on].recording.refuse_if_doomed()?;
        // Each embedding has temporaries to itself.
        let fleeting = graph.fleeting.own.iter().chain(&graph.fleeting.inherited);
        let renamed: BTreeMap<usize, usize> =
            fleeting.map(|alloc| (*alloc, self.nameless(self.allocs[*alloc].len))).collect();
        let mut actions = graph.actions.to_vec();
        for (span, _) in actions.iter_mut().flat_map(|action| &mut action.spans) {
            span.alloc = renamed.get(&span.alloc).copied().unwrap_or(span.alloc);
        }
        let recording = &mut self.streams[on].recording;
        recording.actions.extend(actions);
        recording.inherited.extend(renamed.values());
        recording.touched.extend(graph.members.iter().chain(&graph.arena));
        Ok(())
    }

    /// A read, of which the device `named` this as the cause of its failure.
    pub fn read(
        &mut self,
        on: usize,
        span: &Span,
        refusals: &Refusals,
        waits: bool,
        named: Option<&Cause>,
    ) -> Result<Vec<Option<u8>>, Told> {
        self.check(on)?;
        if !span.range.is_empty() {
            let action = Action::new(Does::Read, vec![(span.clone(), Access::Reads)]);
            self.enqueue(on, action, None, refusals)?;
        }
        if !waits {
            return Err(Cause::Driver(Call::Synchronize).itself());
        }
        self.machine.read(span, named).map_err(|cause| match cause {
            // The state of the bytes says it all.
            Cause::NotReplayed => cause.itself(),
            root => Told { how: How::Tainted, root },
        })
    }

    /// The late failures that `sync` may report now: those of the first entry that had any.
    pub fn sync(&mut self, on: usize) -> Vec<Cause> {
        let asked = std::mem::replace(&mut self.streams[on].asked, self.machine.log.len());
        let mine: Vec<usize> =
            (asked..self.machine.log.len()).filter(|entry| self.machine.log[*entry].stream == on).collect();
        let outcomes = self.machine.outcomes();
        let first = mine.into_iter().find(|entry| !outcomes[*entry].failures.is_empty());
        first.map(|entry| outcomes[entry].failures.clone()).unwrap_or_default()
    }

    pub fn prepare(&mut self, on: usize, window: Option<WindowId>, share: Option<Rc<Sealed>>) {
        let owner = &mut self.streams[on];
        (owner.phase, owner.window, owner.share) = (PhaseName::Prepared, window, share);
        owner.recording = Recording::default();
    }

    pub fn begin(&mut self, on: usize, refused: Option<Call>) -> Result<(), Told> {
        let outcome =
            self.check(on).and_then(|()| refused.map_or(Ok(()), |call| Err(Cause::Driver(call).itself())));
        match &outcome {
            Ok(()) => self.streams[on].phase = PhaseName::Recording,
            Err(_) => self.close(on),
        }
        outcome
    }

    /// The end of a recording, unless `refused`; `sealed` is what the library says of the graph.
    pub fn end(&mut self, on: usize, refused: Option<Call>, sealed: Option<Figures>) -> Result<(), Told> {
        let outcome = self.check(on);
        let recording = std::mem::take(&mut self.streams[on].recording);
        let share = self.streams[on].share.clone();
        self.close(on);
        outcome?;
        let refused = refused.map(|call| Cause::Driver(call).itself());
        if let Some(told) = recording.doom.clone().or(refused) {
            self.kill(&recording, &told.root);
            return Err(told);
        }
        let sealed = sealed.map(|figures| self.seal(recording, share, figures));
        self.graphs.push(sealed.map(Rc::new));
        Ok(())
    }

    fn seal(&mut self, recording: Recording, share: Option<Rc<Sealed>>, figures: Figures) -> Sealed {
        let (lost, kept): (Vec<usize>, Vec<usize>) =
            recording.born.iter().partition(|alloc| !self.is_held(**alloc));
        for alloc in kept {
            self.allocs[alloc].home = Home::Placed;
            let span = Span { alloc, range: 0..self.allocs[alloc].len };
            // Nothing has written them yet, which is as if something had failed to.
            let action = Action::new(Does::Copy, vec![(span, Access::Writes)]);
            let fate = Fate::Refused(Cause::NotReplayed);
            let (actions, fleeting) = (Rc::new([action]), Rc::default());
            self.machine.push(Entry { stream: usize::MAX, actions, fleeting, fate });
        }
        let mut members = recording.touched;
        members.retain(|alloc| !lost.contains(alloc));
        let shared = share.and_then(|graph| graph.arena);
        // One that an embedded graph brings along is in use, and is nobody else's as long.
        let shared =
            shared.filter(|arena| self.allocs[*arena].len >= figures.arena_bytes && !members.contains(arena));
        let arena =
            (figures.arena_bytes > 0).then(|| shared.unwrap_or_else(|| self.nameless(figures.arena_bytes)));
        let fleeting = Rc::new(Fleeting { own: lost, inherited: recording.inherited });
        let actions: Rc<[Action]> = recording.actions.into();
        if figures.nodes == actions.len() {
            self.wholes.push(actions.clone());
        }
        Sealed { actions, fleeting, members, arena }
    }

    /// An allocation that no handle ever names.
    fn nameless(&mut self, len: usize) -> usize {
        let alloc = self.machine.reserve(len);
        self.allocs.resize_with(alloc, || Alloc { len: 0, home: Home::Placed });
        self.allocs.push(Alloc { len, home: Home::Placed });
        alloc
    }

    fn is_held(&self, alloc: usize) -> bool {
        self.handles.iter().flatten().any(|handle| handle.alloc == alloc)
    }

    /// Gives a window up.
    pub fn leave(&mut self, on: usize, how: Abandonment) {
        let recording = std::mem::take(&mut self.streams[on].recording);
        if let Some(window) = self.streams[on].window.filter(|_| !self.streams[on].evicted) {
            let doom = recording.doom.as_ref().map(|told| told.root.clone());
            self.kill(&recording, &doom.unwrap_or(Cause::Abandoned(window, how)));
        }
        self.close(on);
    }

    pub fn evict(&mut self, on: usize, window: WindowId) -> Result<(), Told> {
        if self.streams[on].evicted {
            return Err(Cause::NotOpen(window).itself());
        }
        let owner = &mut self.streams[on];
        let recording = std::mem::take(&mut owner.recording);
        // What the window was to share goes with it, though the owner has not learned of it yet.
        (owner.evicted, owner.share) = (true, None);
        self.kill(&recording, &Cause::Evicted(window));
        Ok(())
    }

    fn close(&mut self, on: usize) {
        let owner = &mut self.streams[on];
        (owner.phase, owner.window, owner.evicted) = (PhaseName::NoCapture, None, false);
        (owner.recording, owner.share) = (Recording::default(), None);
    }

    fn kill(&mut self, recording: &Recording, cause: &Cause) {
        for alloc in
            recording.born.iter().filter(|alloc| self.allocs[**alloc].len > 0).copied().collect::<Vec<_>>()
        {
            self.allocs[alloc].home = Home::Dead(cause.clone());
        }
    }

    /// Whether the entry is a replay of a graph that has a node for everything that was recorded.
    pub fn is_whole(&self, entry: usize) -> bool {
        let actions = &self.machine.log[entry].actions;
        self.wholes.iter().any(|whole| Rc::ptr_eq(whole, actions))
    }

    /// Whether the entry is one operation, not a replay.
    pub fn is_single(&self, entry: usize) -> bool {
        self.singles.contains(&entry)
    }

    /// The bytes that live allocations take, with what alignment adds.
    pub fn in_use(&self) -> usize {
        let mut live: BTreeSet<usize> = self.handles.iter().flatten().map(|handle| handle.alloc).collect();
        let shares = self.streams.iter().filter_map(|owner| owner.share.as_ref());
        for graph in self.graphs.iter().flatten().chain(shares) {
            live.extend(graph.members.iter().chain(&graph.arena));
        }
        self.streams.iter().for_each(|owner| live.extend(&owner.recording.touched));
        let placed =
            live.into_iter().map(|alloc| &self.allocs[alloc]).filter(|alloc| alloc.home == Home::Placed);
        placed.map(|alloc| alloc.len.next_multiple_of(ALIGNMENT)).sum()
    }
}

/// What the library says of a graph, and a model need not foresee.
#[derive(Clone, Copy)]
pub struct Figures {
    pub nodes: usize,
    pub arena_bytes: usize,
}

impl Recording {
    fn refuse_if_doomed(&self) -> Result<(), Told> {
        match &self.doom {
            Some(told) => Err(Told { how: How::Doomed, root: told.root.clone() }),
            None => Ok(()),
        }
    }
}
