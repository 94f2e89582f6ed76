//! Graphs with the buffers that they use, and windows on their way to one.

use dacapo::{Pass, Recording, Refused, WindowId};

use super::support::{Enqueue, Graph, Stream};

use super::checks::{answered, is_end_of_window, is_injected};
use super::plan::Plan;
use super::random::Rng;
use super::steps::{Cells, Tools};
use super::tally::{What, count};

/// A graph, and what it works on.
pub struct Bundle {
    pub graph: Graph,
    pub cells: Cells,
    plan: Plan,
}

/// A window that stays open while other things happen.
pub struct Window {
    recording: Stream<Recording>,
    pub cells: Cells,
    plan: Plan,
    done: usize,
    is_lost: bool,
}

/// How a window ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    End,
    Abort,
    Drop,
    /// By its owner: what any thread may do at any time.
    Evict,
}

impl Bundle {
    /// Records, or captures, in a closure. Without a graph, the cells come back.
    pub fn make(rng: &mut Rng, stream: &mut Stream, tools: &Tools, mut cells: Cells) -> Result<Self, Cells> {
        let plan = Plan::random(rng, &cells, tools);
        let outside = cells.len();
        plan.bear(&mut cells);
        let (mut warm, mut recorded) = (None, None);
        let buffers = &mut cells.buffers;
        let answer = if rng.once_in(2) {
            stream.record(|work| plan.enqueue(work, tools, buffers, 0..plan.len(), recorded.insert(0)))
        } else {
            stream.capture(|work| {
                buffers.truncate(outside);
                let done = if work.pass() == Pass::WarmUp { &mut warm } else { &mut recorded };
                plan.enqueue(work, tools, buffers, 0..plan.len(), done.insert(0))
            })
        };
        if let Some(done) = warm {
            plan.apply(tools, &mut cells.models, done);
        }
        if let Some((graph, ())) = answered("a capture", answer) {
            count(What::Graph);
            plan.unborn(&mut cells.models);
            return Ok(Bundle { graph, cells, plan });
        }
        // The buffers of a warm-up live, and those of a recording that failed do not.
        if recorded.is_some() {
            stillborn(stream, &cells, outside);
        }
        plan.unbear(&mut cells);
        Err(cells)
    }

    pub fn replay(&mut self, stream: &mut Stream, tools: &Tools) {
        match answered("a replay", self.graph.replay(stream)) {
            Some(_ticket) => {
                count(What::Replay);
                self.plan.apply(tools, &mut self.cells.models, self.plan.len());
            }
            None => self.plan.spoil(&mut self.cells.models),
        }
    }
}

impl Window {
    /// Opens a window on `stream`; if the driver refuses, the stream and the cells come back.
    pub fn open(
        rng: &mut Rng,
        stream: Stream,
        tools: &Tools,
        mut cells: Cells,
    ) -> Result<Self, (Stream, Cells)> {
        let prepared = match stream.prepare() {
            Ok(prepared) => prepared,
            Err(refused) => return Err((given_back(refused), cells)),
        };
        if rng.once_in(8) {
            return Err((prepared.cancel(), cells));
        }
        match prepared.begin() {
            Ok(recording) => {
                let plan = Plan::random(rng, &cells, tools);
                plan.bear(&mut cells);
                Ok(Window { recording, cells, plan, done: 0, is_lost: false })
            }
            Err(refused) => Err((given_back(refused), cells)),
        }
    }

    pub fn id(&self) -> Option<WindowId> {
        self.recording.window()
    }

    pub fn is_full(&self) -> bool {
        self.is_lost || self.done == self.plan.len()
    }

    /// Records some of what is left.
    pub fn advance(&mut self, tools: &Tools, operations: usize) {
        if self.is_lost {
            return;
        }
        let range = self.done..self.plan.len().min(self.done + operations);
        let buffers = &mut self.cells.buffers;
        if let Err(error) = self.plan.enqueue(&mut self.recording, tools, buffers, range, &mut self.done) {
            assert!(is_end_of_window(&error), "a window: {error:?}");
            self.is_lost = true;
        }
    }

    /// Ends the window. What comes of it: the stream unless it was dropped, and a graph or the cells.
    pub fn close(mut self, tools: &Tools, ending: Ending) -> (Option<Stream>, Result<Bundle, Cells>) {
        self.advance(tools, self.plan.len());
        match ending {
            Ending::End => self.end(),
            Ending::Evict => {
                let (device, window) = (self.recording.device(), self.recording.window());
                // Somebody else may have been faster.
                self.is_lost |= window.is_some_and(|window| device.evict(window).is_ok());
                self.end()
            }
            Ending::Abort => {
                let mut stream = self.recording.abort();
                stillborn(&mut stream, &self.cells, self.plan.outside());
                self.plan.unbear(&mut self.cells);
                (Some(stream), Err(self.cells))
            }
            Ending::Drop => {
                drop(self.recording);
                self.plan.unbear(&mut self.cells);
                (None, Err(self.cells))
            }
        }
    }

    fn end(mut self) -> (Option<Stream>, Result<Bundle, Cells>) {
        match self.recording.end() {
            Ok((graph, stream)) => {
                count(What::Graph);
                assert!(!self.is_lost, "a window that was lost became a graph");
                (Some(stream), Ok(Bundle { graph, cells: self.cells, plan: self.plan }))
            }
            Err(refused) => {
                let (mut stream, error) = refused.into_parts();
                count(What::WindowLost);
                assert!(is_end_of_window(&error), "the end of a window: {error:?}");
                stillborn(&mut stream, &self.cells, self.plan.outside());
                self.plan.unbear(&mut self.cells);
                (Some(stream), Err(self.cells))
            }
        }
    }
}

/// Buffers that were born in a recording that never became a graph hold nothing, for ever.
fn stillborn(stream: &mut Stream, cells: &Cells, outside: usize) {
    for born in cells.buffers[outside..].iter().flatten() {
        assert!(stream.read(born).is_err(), "a buffer of a recording that never sealed was read");
    }
}

fn given_back(refused: Refused<Stream>) -> Stream {
    let (stream, error) = refused.into_parts();
    assert!(is_injected(&error), "a window that did not open: {error:?}");
    stream
}
