//! Deciding when queued work runs, and how a program ends.

use std::sync::atomic::Ordering;

use dacapo::{Call, Error};

use super::driver::{Chosen, Driver, PATIENCE, SLOTS, STREAMS, Verdict, same};
use super::model::{Strike, Told};
use super::program::Leave;
use super::streams::{Lane, each};
use super::subject;
use super::support::{Buffer, Enqueue, Gate, eventually};

impl Driver {
    /// Holds a slot up: what is enqueued on it, and what depends on that, runs later than it would.
    pub fn hold(&mut self, on: usize) -> Verdict {
        if self.stepper.is_some()
            || self.gate.is_some()
            || self.book.records(on)
            || self.book.check(on).is_err()
        {
            return Ok(());
        }
        self.say(|| format!("(the slot of s{on} is held up)"));
        self.gate = Some(each!(&mut self.lanes[on], stream => Gate::close(stream)));
        Ok(())
    }

    /// Lets the slot go that is held up.
    pub fn let_go(&mut self) {
        if let Some(gate) = self.gate.take() {
            // One that opened by itself has cost time, and nothing else.
            gate.open_in_time();
            self.say(|| "(it is let go)".to_owned());
        }
    }

    pub fn step(&mut self, on: usize, times: u8) -> Verdict {
        let Some(stepper) = &self.stepper else { return Ok(()) };
        let id = self.lanes[on].id();
        let ran = (0..times).filter(|_| stepper.step(id)).count();
        self.say(|| format!("stepper: {ran} of the slot of s{on}"));
        Ok(())
    }

    /// Moves buffers together. Nobody can tell but by the queues, which have moves that the log does not know: on a
    /// stepped device these run before anything else is queued behind them.
    pub fn compact(&mut self, on: usize) -> Verdict {
        let Lane::Idle(stream) = &mut self.lanes[on] else { return Ok(()) };
        let answer = stream.compact().map_err(|error| Told::of(&error));
        if let Some(stepper) = &self.stepper {
            stepper.run_all();
        }
        self.say(|| format!("s{on}.compact() -> {answer:?}"));
        same("compact", &answer.map(drop), &Ok(()))
    }

    /// The next operation of a slot, which the device fails; of a replay, all of its nodes or one of them.
    pub fn step_failing(&mut self, on: usize, node: Option<u8>) -> Verdict {
        let Some(stepper) = self.stepper.clone() else { return Ok(()) };
        let id = self.lanes[on].id();
        let queued = &self.book.queued[self.book.streams[on].slot];
        let pending = stepper.pending(id);
        let Some(entry) = queued.len().checked_sub(pending).and_then(|next| queued.get(next).copied()) else {
            return Ok(());
        };
        let actions = self.book.machine.log[entry].actions.len();
        // A graph without some of its zeroings has other nodes than the list of what was recorded.
        let exact = self.book.is_single(entry) || self.book.is_whole(entry);
        let strike = match node {
            Some(node) if exact && actions > 0 => Strike::Nth(usize::from(node) % actions + 1),
            _ if exact => Strike::All,
            _ => return Ok(()),
        };
        match strike {
            Strike::All => subject::refuse_all(&self.device, Call::Execute),
            Strike::Nth(nth) => subject::refuse_nth(&self.device, Call::Execute, nth as u64),
        }
        let ran = stepper.step(id);
        self.say(|| {
            format!("stepper: 1 of the slot of s{on}, which the device fails ({strike:?}): ran {ran}")
        });
        if ran {
            self.book.machine.strike(entry, strike);
        }
        Ok(())
    }

    /// Everything that can be seen at the end, and that nothing is left when everything is dropped.
    pub fn finish(mut self) -> (Verdict, Vec<String>) {
        self.trace.clear();
        self.let_go();
        let verdict = self.compare_all();
        (verdict, self.trace)
    }

    fn compare_all(&mut self) -> Verdict {
        for handle in
            (0..self.buffers.len()).filter(|handle| self.buffers[*handle].is_some()).collect::<Vec<_>>()
        {
            let on = (0..STREAMS).find(|on| self.lanes[*on].window().is_none()).unwrap_or(0);
            if self.lanes[on].window().is_some() {
                self.leave(on, Leave::Drop)?;
            }
            let len = self.buffers[handle].as_ref().map_or(0, Buffer::len);
            self.read_chosen(on, &Chosen { handle, start: 0, end: len }, None)?;
        }
        self.drain()?;
        for counter in 0..self.counters.len() {
            let (called, expected) =
                (self.counters[counter].load(Ordering::Relaxed), self.book.machine.calls(counter));
            same(&format!("calls of callback {counter}"), &called, &expected)?;
        }
        self.buffers.clear();
        self.graphs.clear();
        self.lanes.clear();
        self.drain()?;
        let mut stream = self.device.stream().map_err(|error| error.to_string())?;
        stream.memory_cleanup().map_err(|error| error.to_string())?;
        // What no graph and no handle holds any more goes on a thread of the library's own.
        eventually(|| self.device.memory_usage().pending == 0);
        let usage = self.device.memory_usage();
        same("bytes in use at the end", &(usage.in_use, usage.pending), &(0, 0))
    }

    /// Lets everything that is queued run.
    fn drain(&mut self) -> Verdict {
        if let Some(stepper) = &self.stepper {
            stepper.run_all();
        }
        for _ in 0..SLOTS {
            let passes = |error: Error| error.to_string();
            let mut stream = self.device.stream().map_err(passes)?;
            // A queue is done with everything before its last operation.
            stream.host_call(|| {}).map_err(passes)?;
            stream.sync_timeout(PATIENCE).map_err(passes)?;
        }
        Ok(())
    }
}
