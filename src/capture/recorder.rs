//! The list that a recording is.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::Arc;

use crate::backend::sealed::Driver;
use crate::backend::{Backend, Job};
use crate::capture::constants::Constants;
use crate::capture::early::Early;
use crate::capture::status::WindowId;
use crate::device::DeviceCore;
use crate::error::{Error, Result};
use crate::graph::commands::Commands;
use crate::graph::flow::Use;
use crate::kernel::args::UseOf;
use crate::memory::allocation::Allocation;

/// What a window has recorded so far. Flat lists, whose room the next recording of the stream uses again.
pub(crate) struct Recorder<B: Backend> {
    /// Every allocation touched: pinned, since held here.
    pub(crate) allocs: Vec<Touched<B>>,
    index: HashMap<u64, u32, BuildHasherDefault<IdHasher>>,
    pub(crate) nodes: Vec<Node<B>>,
    pub(crate) uses: Vec<Use>,
    pub(crate) scalars: Vec<u8>,
    /// How many of the nodes may turn out to be superfluous.
    pub(crate) zeroings: usize,
    /// Tables that `end` uploads, once there was one.
    constants: Option<Box<Constants>>,
    /// Stands for the constants, which have no memory before `end`.
    constant: Option<Arc<Allocation<B>>>,
    /// Buffers born here that have their memory already, by their number in `allocs`.
    early: Vec<(u32, Early<B>)>,
    /// The first failure: with it, the recording never becomes a graph.
    pub(crate) doom: Option<Arc<Error>>,
}

/// An allocation that the recording touches.
pub(crate) struct Touched<B: Backend> {
    pub(crate) alloc: Arc<Allocation<B>>,
    /// Whether this recording made it.
    pub(crate) born: bool,
}

impl<B: Backend> Touched<B> {
    /// What was there before stays where it is for as long as this lives: the graph resolves it only at the end.
    pub(crate) fn new(alloc: &Arc<Allocation<B>>, birth: Birth) -> Self {
        let born = birth == Birth::Here;
        if !born {
            alloc.state.lock().pins += 1;
        }
        Touched { alloc: alloc.clone(), born }
    }
}

impl<B: Backend> Drop for Touched<B> {
    fn drop(&mut self) {
        if !self.born {
            self.alloc.state.lock().pins -= 1;
        }
    }
}

/// One recorded operation. What it uses is in lists of all operations; their numbers take half the room of addresses,
/// since it is the size of a long recording that makes it slow.
pub(crate) struct Node<B: Driver> {
    pub(crate) job: Job<B>,
    pub(crate) uses: Range<u32>,
    /// How many of the uses are of tokens: the last ones.
    pub(crate) tokens: u32,
    pub(crate) scalars: Range<u32>,
    pub(crate) kind: Kind,
}

impl<B: Driver> Node<B> {
    /// Where its uses are.
    pub(crate) fn uses(&self) -> Range<usize> {
        self.uses.start as usize..self.uses.end as usize
    }

    /// Where those uses are that a backend sees, which never sees a token.
    pub(crate) fn buffers(&self) -> Range<usize> {
        self.uses.start as usize..self.uses.end.saturating_sub(self.tokens) as usize
    }

    /// Where its scalars are.
    pub(crate) fn scalars(&self) -> Range<usize> {
        self.scalars.start as usize..self.scalars.end as usize
    }
}

/// What sealing may do with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Ordered by the bytes that it uses.
    Plain,
    /// Ordered after everything before it and before everything after it.
    Barrier,
    /// The zeroing of a new buffer, left out where a full write comes before any read.
    Zeroing,
}

/// Allocation ids count up, which is all the spread that a hash table needs.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = (self.0 << 8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, id: u64) {
        // Fibonacci hashing: the table looks at the top bits as well.
        self.0 = id.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

impl<B: Backend> Default for Recorder<B> {
    fn default() -> Self {
        Recorder {
            allocs: Vec::new(),
            index: HashMap::default(),
            nodes: Vec::new(),
            uses: Vec::new(),
            scalars: Vec::new(),
            zeroings: 0,
            constants: None,
            constant: None,
            early: Vec::new(),
            doom: None,
        }
    }
}

impl<B: Backend> Recorder<B> {
    /// Appends one operation to a recording that is not doomed; its job is made where it is kept. On an error nothing is
    /// appended nor held, and it is doomed.
    #[inline]
    pub(crate) fn append(
        &mut self,
        (window, operation): (WindowId, &'static str),
        (uses, scalars): (&[UseOf<'_, B>], &[u8]),
        kind: Kind,
        job: impl FnOnce() -> Job<B>,
    ) -> Result<()> {
        let (first_use, first_scalar) = (self.uses.len() as u32, self.scalars.len() as u32);
        let tokens = self.note(window, operation, uses, scalars).map_err(|error| *error)?;
        let (uses, scalars) = (first_use..self.uses.len() as u32, first_scalar..self.scalars.len() as u32);
        self.zeroings += usize::from(kind == Kind::Zeroing);
        self.nodes.push(Node { job: job(), uses, tokens, scalars, kind });
        Ok(())
    }

    /// Writes down what an operation uses, and its scalars, where numbers of 32 bits reach; returns how many of the uses are of
    /// tokens. On an error nothing is written down, and the recording is doomed.
    fn note(
        &mut self,
        window: WindowId,
        operation: &'static str,
        uses: &[UseOf<'_, B>],
        scalars: &[u8],
    ) -> Result<u32, Box<Error>> {
        let first_use = self.uses.len();
        let most = (first_use + uses.len()).max(self.scalars.len() + scalars.len());
        if u32::try_from(most).is_err() {
            return Err(Box::new(self.fail(too_long(operation))));
        }
        let mut is_known = true;
        for used in uses {
            let number = self.number(used.alloc);
            is_known &= number.is_some() && !used.alloc.is_token;
            self.uses.push(used.at(number.unwrap_or(u32::MAX)));
        }
        let tokens = if is_known { Ok(0) } else { self.note_new(window, operation, uses) };
        let tokens = tokens.map_err(|error| {
            self.uses.truncate(first_use);
            Box::new(self.fail(error))
        })?;
        self.scalars.extend_from_slice(scalars);
        Ok(tokens)
    }

    /// Writes down again what an operation uses, tokens last, where some of it is new; returns how many tokens there are.
    ///
    /// An allocation that was used before may be used again, since what is touched stays where it is. New ones are
    /// touched only when nothing speaks against any of them: a doomed recording holds no buffer for an operation that it
    /// has not.
    #[inline(never)]
    fn note_new(&mut self, window: WindowId, operation: &'static str, uses: &[UseOf<'_, B>]) -> Result<u32> {
        for used in uses.iter().filter(|used| self.number(used.alloc).is_none()) {
            used.alloc.state.lock().recordable(operation, window)?;
        }
        self.uses.truncate(self.uses.len() - uses.len());
        let mut tokens = 0;
        for used in uses.iter().filter(|used| !used.alloc.is_token) {
            self.note_touched(used);
        }
        for used in uses.iter().filter(|used| used.alloc.is_token) {
            self.note_touched(used);
            tokens += 1;
        }
        Ok(tokens)
    }

    fn note_touched(&mut self, used: &UseOf<'_, B>) {
        let number = self.touch(used.alloc, Birth::Outside);
        self.uses.push(used.at(number));
    }

    /// The number of an allocation among those that the recording touches.
    #[inline]
    fn number(&self, alloc: &Arc<Allocation<B>>) -> Option<u32> {
        let guess = alloc.guess();
        let is_right = |touched: &Touched<B>| Arc::ptr_eq(&touched.alloc, alloc);
        if self.allocs.get(guess as usize).is_some_and(is_right) { Some(guess) } else { self.look_up(alloc) }
    }

    #[inline(never)]
    fn look_up(&self, alloc: &Arc<Allocation<B>>) -> Option<u32> {
        self.index.get(&alloc.id()).copied().inspect(|number| alloc.note_guess(*number))
    }

    /// Writes down an allocation that this recording made.
    pub(crate) fn bear(&mut self, alloc: &Arc<Allocation<B>>) {
        self.touch(alloc, Birth::Here);
    }

    /// The memory that a buffer born here has already.
    pub(crate) fn early(&self, alloc: &Allocation<B>) -> Option<&Early<B>> {
        let number = self.index.get(&alloc.id())?;
        self.early.iter().find(|(of, _)| of == number).map(|(_, early)| early)
    }

    /// Gives a buffer born here its memory, before the end.
    pub(crate) fn place_early(&mut self, alloc: &Arc<Allocation<B>>, early: Early<B>) {
        let number = self.touch(alloc, Birth::Here);
        self.early.push((number, early));
    }

    /// Which buffers born here have their memory already, by their number in `allocs`.
    pub(crate) fn placed(&self) -> impl Iterator<Item = u32> {
        self.early.iter().map(|(number, _)| *number)
    }

    /// Hands over the memory that buffers born here have already.
    pub(crate) fn take_early(&mut self) -> Vec<(u32, Early<B>)> {
        std::mem::take(&mut self.early)
    }

    /// Where a table is that becomes a constant of this recording.
    pub(crate) fn constant(
        &mut self,
        device: &Arc<DeviceCore<B>>,
        slot: u32,
        table: &[u8],
    ) -> (Arc<Allocation<B>>, Range<usize>) {
        let constants = self.constants.get_or_insert_default();
        let range = constants.place(table, device.limits.alignment);
        (self.constant.get_or_insert_with(|| Allocation::empty(device, slot)).clone(), range)
    }

    /// The bytes of all constants; none if there are none.
    pub(crate) fn constants(&self) -> &[u8] {
        self.constants.as_ref().map_or(&[], |constants| constants.bytes())
    }

    /// Gives the constants their memory: an allocation from outside, as far as the graph goes.
    pub(crate) fn place_constants(&mut self, memory: Arc<Allocation<B>>) {
        let index = self.constant.take().and_then(|constant| self.index.get(&constant.id()).copied());
        if let Some(touched) = index.and_then(|index| self.allocs.get_mut(index as usize)) {
            *touched = Touched::new(&memory, Birth::Outside);
        }
    }

    /// Appends the nodes of a sealed graph, whose allocations are `members`. On an error nothing is appended, and the
    /// recording is doomed.
    pub(crate) fn embed(&mut self, members: &[Arc<Allocation<B>>], commands: &Commands<B>) -> Result<()> {
        let Commands { nodes, uses, scalars, .. } = commands;
        if uses.iter().any(|used| used.alloc as usize >= members.len()) {
            let reason = "the graph uses memory that it does not know";
            return Err(self.fail(Error::Unsupported { operation: "embed", reason }));
        }
        let (first_use, first_scalar) = (self.uses.len(), self.scalars.len());
        let all = (span(0..first_use + uses.len()), span(0..first_scalar + scalars.len()));
        let (Some(_), Some(_)) = all else { return Err(self.fail(too_long("embed"))) };
        let map: Vec<u32> = members.iter().map(|alloc| self.touch(alloc, Birth::Outside)).collect();
        let own = |alloc: u32| map.get(alloc as usize).copied().unwrap_or(alloc);
        self.uses.extend(uses.iter().map(|used| Use { alloc: own(used.alloc), ..*used }));
        self.scalars.extend_from_slice(scalars);
        let shift = |range: &Range<u32>, by: usize| range.start + by as u32..range.end + by as u32;
        self.nodes.extend(nodes.iter().map(|node| Node {
            job: node.job.clone(),
            uses: shift(&node.uses, first_use),
            tokens: node.tokens,
            scalars: shift(&node.scalars, first_scalar),
            // A child's zeroing was found necessary when the child was sealed.
            kind: if node.kind == Kind::Zeroing { Kind::Plain } else { node.kind },
        }));
        Ok(())
    }

    /// Dooms the recording with `error`, unless it is already doomed; returns the error.
    pub(crate) fn fail(&mut self, error: Error) -> Error {
        self.doom.get_or_insert_with(|| Arc::new(error.clone()));
        error
    }

    pub(crate) fn refuse_if_doomed(&self, operation: &'static str) -> Result<()> {
        match &self.doom {
            Some(cause) => Err(Error::Doomed { operation, cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Marks the buffers born here as lost, and lets everything go; the lists keep their room.
    pub(crate) fn kill(&mut self, cause: &Arc<Error>) {
        self.condemn(cause);
        self.clear();
    }

    /// Marks the buffers born here as lost.
    pub(crate) fn condemn(&self, cause: &Arc<Error>) {
        self.allocs.iter().filter(|touched| touched.born).for_each(|touched| touched.alloc.kill(cause));
    }

    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.allocs.clear();
        self.index.clear();
        self.uses.clear();
        self.scalars.clear();
        self.zeroings = 0;
        self.constants.iter_mut().for_each(|constants| constants.clear());
        self.constant = None;
        self.early.clear();
        self.doom = None;
    }

    fn touch(&mut self, alloc: &Arc<Allocation<B>>, birth: Birth) -> u32 {
        *self.index.entry(alloc.id()).or_insert_with(|| {
            let number = self.allocs.len() as u32;
            alloc.note_guess(number);
            self.allocs.push(Touched::new(alloc, birth));
            number
        })
    }

    /// Takes out the nodes that are not `needed`, with what they use.
    pub(crate) fn leave_out(&mut self, needed: &[bool]) {
        let Recorder { nodes, uses, .. } = self;
        let (mut needed, mut kept) = (needed.iter(), 0);
        nodes.retain_mut(|node| {
            if needed.next() == Some(&false) {
                return false;
            }
            let (from, first) = (node.uses(), kept as u32);
            kept += from.len();
            // Never behind where they were, so that none is overwritten that is still to come.
            uses.copy_within(from, first as usize);
            node.uses = first..kept as u32;
            true
        });
        uses.truncate(kept);
    }

    /// Hands over the nodes, their uses and their scalars, and makes room for as many again.
    pub(crate) fn take_lists(&mut self) -> (Vec<Node<B>>, Vec<Use>, Vec<u8>) {
        (hand_over(&mut self.nodes), hand_over(&mut self.uses), hand_over(&mut self.scalars))
    }
}

/// Where an allocation was before the recording.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Birth {
    /// Nowhere: the recording made it.
    Here,
    Outside,
}

fn hand_over<T>(list: &mut Vec<T>) -> Vec<T> {
    let len = list.len();
    let mut taken = std::mem::replace(list, Vec::with_capacity(len));
    // A graph lives for long; the recordings before may have been larger.
    if taken.capacity() / 2 > len {
        taken.shrink_to_fit();
    }
    taken
}

/// A range in the numbers that a recording has room for.
fn span(range: Range<usize>) -> Option<Range<u32>> {
    Some(u32::try_from(range.start).ok()?..u32::try_from(range.end).ok()?)
}

fn too_long(operation: &'static str) -> Error {
    Error::Unsupported {
        operation,
        reason: "a recording has room for 4 GiB of scalars and as many arguments",
    }
}
