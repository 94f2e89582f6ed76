//! Transitions of streams, graphs, and evictions.

use dacapo::{Call, Order, PhaseName};

use super::book::Figures;
use super::driver::{Driver, PATIENCE, Verdict, one_of, same};
use super::model::{Cause, Told};
use super::program::{Transition, Trouble};
use super::streams::{Lane, waiting};
use super::support::{CaptureOptions, Enqueue, Graph};

impl Driver {
    pub fn advance(
        &mut self,
        on: usize,
        share: Option<u8>,
        order: Order,
        trouble: Option<Trouble>,
    ) -> Verdict {
        match self.lanes[on].phase() {
            PhaseName::NoCapture => self.prepare(on, share, order),
            PhaseName::Prepared => self.begin(on, trouble),
            _ => self.end(on, trouble),
        }
    }

    fn prepare(&mut self, on: usize, share: Option<u8>, order: Order) -> Verdict {
        let share = share.and_then(|pick| self.graph(pick));
        let mut options = CaptureOptions::new().order(order);
        if let Some(graph) = share.as_ref().and_then(|(graph, _)| self.graphs[*graph].as_ref()) {
            options = options.share_arena(graph);
        }
        let words = share.as_ref().map(|(graph, _)| format!(", in the arena of g{graph}"));
        self.say(|| format!("s{on}.prepare({order:?}{})", words.unwrap_or_default()));
        let answer = match self.lanes[on].take() {
            Lane::Idle(stream) => match stream.prepare_with(options) {
                Ok(stream) => self.put(on, Lane::Prepared(stream), Ok(())),
                Err(refused) => {
                    let (stream, error) = refused.into_parts();
                    self.put(on, Lane::Idle(stream), Err(error))
                }
            },
            Lane::Any(mut any) => {
                let answer = any.prepare_with(options);
                self.put(on, Lane::Any(any), answer)
            }
            other => self.put(on, other, Ok(())),
        };
        self.book.prepare(on, self.lanes[on].window(), share.map(|(_, sealed)| sealed));
        same("prepare", &answer, &Ok(()))
    }

    fn begin(&mut self, on: usize, trouble: Option<Trouble>) -> Verdict {
        self.arm(trouble, Call::Begin);
        self.say(|| format!("s{on}.begin()"));
        let answer = match self.lanes[on].take() {
            Lane::Prepared(stream) => match stream.begin() {
                Ok(stream) => self.put(on, Lane::Recording(stream), Ok(())),
                Err(refused) => {
                    let (stream, error) = refused.into_parts();
                    self.put(on, Lane::Idle(stream), Err(error))
                }
            },
            Lane::Any(mut any) => {
                let answer = any.begin();
                self.put(on, Lane::Any(any), answer)
            }
            other => self.put(on, other, Ok(())),
        };
        let refused = (trouble == Some(Trouble::Own)).then_some(Call::Begin);
        let expected = self.book.begin(on, refused);
        same("begin", &answer, &expected)?;
        same("phase after begin", &self.lanes[on].phase(), &self.book.streams[on].phase)
    }

    fn end(&mut self, on: usize, trouble: Option<Trouble>) -> Verdict {
        // Sealing has no call of the user's to itself, so what else could be refused stands for it.
        let own = if trouble == Some(Trouble::Wait) { Call::Seal } else { Call::End };
        let trouble = trouble.map(|what| if what == Trouble::Wait { Trouble::Own } else { what });
        self.arm(trouble, own);
        let new = self.graphs.len();
        self.say(|| format!("g{new} = s{on}.end()"));
        let (answer, graph) = match self.lanes[on].take() {
            Lane::Recording(stream) => match stream.end() {
                Ok((graph, stream)) => (self.put(on, Lane::Idle(stream), Ok(())), Some(graph)),
                Err(refused) => {
                    let (stream, error) = refused.into_parts();
                    (self.put(on, Lane::Idle(stream), Err(error)), None)
                }
            },
            Lane::Any(mut any) => match any.end() {
                Ok(graph) => (self.put(on, Lane::Any(any), Ok(())), Some(graph)),
                Err(error) => (self.put(on, Lane::Any(any), Err(error)), None),
            },
            other => (self.put(on, other, Ok(())), None),
        };
        let allocation = Cause::Driver(Call::Allocate).itself();
        let refused = match trouble {
            Some(Trouble::Own) => Some(own),
            Some(Trouble::Allocate) if answer == Err(allocation) => Some(Call::Allocate),
            _ => None,
        };
        let figures = |graph: &Graph| Figures { nodes: graph.nodes(), arena_bytes: graph.arena_bytes() };
        let expected = self.book.end(on, refused, graph.as_ref().map(figures));
        same("end", &answer, &expected)?;
        if graph.is_some() {
            self.graphs.push(graph);
            self.tickets.push(None);
        }
        same("phase after end", &self.lanes[on].phase(), &PhaseName::NoCapture)
    }

    fn put(&mut self, on: usize, lane: Lane, answer: dacapo::Result<()>) -> Result<(), Told> {
        self.lanes[on] = lane;
        answer.map_err(|error| Told::of(&error))
    }

    pub fn misorder(&mut self, on: usize, transition: Transition) -> Verdict {
        let Lane::Any(any) = &mut self.lanes[on] else { return Ok(()) };
        let phase = any.phase();
        let needs = match transition {
            Transition::Prepare => PhaseName::NoCapture,
            Transition::Begin | Transition::Cancel => PhaseName::Prepared,
            Transition::End | Transition::Abort => PhaseName::Recording,
        };
        if phase == needs {
            return Ok(());
        }
        let answer = match transition {
            Transition::Prepare => any.prepare(),
            Transition::Begin => any.begin(),
            Transition::Cancel => any.cancel(),
            Transition::End => any.end().map(drop),
            Transition::Abort => any.abort(),
        };
        let after = any.phase();
        self.say(|| format!("s{on}: {transition:?} while {phase:?}"));
        same("out of order", &answer.map_err(|e| Told::of(&e)), &Err(Cause::WrongPhase.itself()))?;
        same("phase after a call out of order", &after, &phase)
    }

    pub fn evict(&mut self, on: usize) -> Verdict {
        let Some(window) = self.lanes[on].window() else { return Ok(()) };
        self.say(|| format!("device.evict(the window of s{on})"));
        let answer = self.device.evict(window).map(drop).map_err(|error| Told::of(&error));
        let expected = self.book.evict(on, window);
        same("evict", &answer, &expected)
    }

    pub fn retype(&mut self, on: usize) -> Verdict {
        let phase = self.lanes[on].phase();
        let lane = self.lanes[on].take().retyped();
        self.lanes[on] = lane;
        let now = if self.lanes[on].is_any() { "a phase known at run time" } else { "a typed phase" };
        self.say(|| format!("s{on} into {now}"));
        same("phase after the conversion", &self.lanes[on].phase(), &phase)
    }

    pub fn replay(&mut self, on: usize, graph: u8, trouble: Option<Trouble>) -> Verdict {
        let Some((graph, sealed)) = self.graph(graph) else { return Ok(()) };
        if matches!(self.lanes[on], Lane::Recording(_)) {
            return Ok(());
        }
        if self.tickets[graph].is_none() {
            // A driver may wait to make room for a graph that is new.
            self.let_go();
        }
        self.arm(trouble, Call::Replay);
        self.say(|| format!("g{graph}.replay(s{on})"));
        let Some(real) = &mut self.graphs[graph] else { return Ok(()) };
        let Some(answer) = waiting!(&mut self.lanes[on], stream => real.replay(stream)) else {
            return Ok(());
        };
        let answer = answer.map_err(|error| Told::of(&error));
        let refusals = Self::refusals(trouble, Call::Replay, &answer);
        let expected = self.book.replay(on, &sealed, &refusals);
        let told = answer.as_ref().map(drop).map_err(Clone::clone);
        same("replay", &told, &expected.as_ref().map(drop).map_err(Clone::clone))?;
        if let (Ok(ticket), Ok(entry)) = (answer, expected) {
            self.tickets[graph] = Some((entry, ticket));
        }
        Ok(())
    }

    pub fn embed(&mut self, on: usize, graph: u8, trouble: Option<Trouble>) -> Verdict {
        let Some((graph, sealed)) = self.graph(graph) else { return Ok(()) };
        self.arm(trouble, Call::Replay);
        self.say(|| format!("s{on}.embed(g{graph})"));
        let Some(real) = &mut self.graphs[graph] else { return Ok(()) };
        let answer = super::streams::each!(&mut self.lanes[on], stream => stream.embed(real));
        let answer = answer.map_err(|error| Told::of(&error));
        let refusals = Self::refusals(trouble, Call::Replay, &answer);
        let expected = self.book.embed(on, &sealed, &refusals);
        // What went by another way than a ticket's may be what its graph reports next.
        self.tickets[graph] = None;
        same("embed", &answer, &expected)
    }

    pub fn drop_graph(&mut self, graph: u8) -> Verdict {
        let Some((graph, _)) = self.graph(graph) else { return Ok(()) };
        self.say(|| format!("drop(g{graph})"));
        self.graphs[graph] = None;
        self.book.graphs[graph] = None;
        Ok(())
    }

    pub fn wait_ticket(&mut self, pick: u8, trouble: Option<Trouble>) -> Verdict {
        let known: Vec<usize> =
            (0..self.tickets.len()).filter(|graph| self.tickets[*graph].is_some()).collect();
        let Some(graph) = known.get(usize::from(pick) % known.len().max(1)).copied() else { return Ok(()) };
        let Some((entry, ticket)) = self.tickets[graph].clone() else { return Ok(()) };
        self.arm(trouble, Call::Synchronize);
        self.say(|| format!("the last ticket of g{graph}.wait()"));
        let answer = ticket.wait_timeout(PATIENCE).map_err(|error| Told::of(&error));
        if matches!(trouble, Some(Trouble::Own | Trouble::Synchronize)) {
            return same("wait", &answer, &Err(Cause::Driver(Call::Synchronize).itself()));
        }
        let told = &self.book.machine.outcome(entry).told;
        // Which of several nodes is the first to fail is up to the workers.
        let known = if self.stepper.is_some() { 1 } else { told.len() };
        let causes: Vec<Cause> =
            told.iter().take(known).flat_map(|suspects| suspects.iter().cloned()).collect();
        one_of("wait", &answer, &causes)
    }
}
