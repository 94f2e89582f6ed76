//! A sealed graph of the host, and its replay.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::backend::host::execute::{self, Outcome};
use crate::backend::host::schedule::Schedule;
use crate::backend::host::{Host, Machine};
use crate::backend::{CommandRef, Fleeting, Submitter, outcome};
use crate::callback::OnDevice;
use crate::error::Error;
use crate::failures::Reports;
use crate::graph::commands::Commands;
use crate::graph::flow::Dag;
use crate::order::Mark;

/// Commands, and which of them may run side by side. One replay at a time: the core orders them.
pub struct HostExec {
    commands: Arc<Commands<Host>>,
    schedule: Schedule,
    fleeting: Vec<Fleeting<Host>>,
    /// Per run, how many runs it still waits for.
    waiting: Vec<AtomicU32>,
    /// Runs of this replay that are not done.
    pub(crate) left: AtomicUsize,
    /// Whose replay is running, for whichever thread runs a part of it.
    replay: Mutex<Option<Replay>>,
}

/// Whose replay is running.
#[derive(Clone)]
pub(crate) struct Replay {
    pub(crate) machine: Arc<Machine>,
    pub(crate) mark: Mark,
    pub(crate) by: Submitter,
    pub(crate) reports: Arc<Reports>,
}

impl HostExec {
    pub(crate) fn new(commands: Arc<Commands<Host>>, dag: &Dag, fleeting: Vec<Fleeting<Host>>) -> Self {
        let schedule = Schedule::new(dag);
        let waiting = schedule.runs.iter().map(|run| AtomicU32::new(run.waits)).collect();
        HostExec {
            commands,
            schedule,
            fleeting,
            waiting,
            left: AtomicUsize::new(0),
            replay: Mutex::new(None),
        }
    }

    /// Runs every node once and returns when all are done.
    pub(crate) fn replay(self: &Arc<Self>, replay: Replay) {
        let machine = replay.machine.clone();
        self.fleeting.iter().for_each(|fleeting| fleeting.contents.taint.clear(0..fleeting.bytes));
        let serial = machine.is_stepped() || machine.crew.is_alone() || self.schedule.runs.len() < 2;
        if serial {
            // The order of recording is an order of the data, and a stepped device's is always the same.
            self.commands.iter().for_each(|command| self.node(command, &replay));
            return;
        }
        for (waiting, run) in self.waiting.iter().zip(&self.schedule.runs) {
            waiting.store(run.waits, Ordering::Relaxed);
        }
        // The crew's lock, which every run passes through, publishes these.
        self.left.store(self.schedule.runs.len(), Ordering::Relaxed);
        *self.replay.lock() = Some(replay);
        machine.crew.run(self, &self.schedule.first);
        self.replay.lock().take();
    }

    /// Runs one run, and tells `ready` which others may start now. Returns whether it was the last one.
    pub(crate) fn run(&self, index: u32, mut ready: impl FnMut(u32)) -> bool {
        let replay = self.replay.lock().clone();
        let Some(run) = self.schedule.runs.get(index as usize) else { return false };
        if let Some(replay) = replay {
            let _on_device = OnDevice::enter();
            for node in self.schedule.nodes(run) {
                if let Some(command) = self.commands.get(*node as usize) {
                    self.node(command, &replay);
                }
            }
        }
        for successor in self.schedule.successors(run) {
            let Some(waiting) = self.waiting.get(*successor as usize) else { continue };
            // AcqRel: the last of the runs that a successor waits for hands on what all of them wrote.
            if waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
                ready(*successor);
            }
        }
        // Release what this run wrote to whoever sees that all is done.
        self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Remembers, instead of a replay, that nothing was written.
    pub(crate) fn fail(&self, cause: &Arc<Error>) {
        self.commands.iter().for_each(|command| outcome::fail(command, cause));
    }

    fn node(&self, command: CommandRef<'_, Host>, replay: &Replay) {
        match execute::run(&replay.machine, command) {
            Outcome::Done => {}
            Outcome::Failed(error) => {
                replay.by.failures.park(&error);
                replay.reports.note(replay.mark, &error);
            }
            Outcome::Skipped(error) => replay.reports.note(replay.mark, &error),
        }
    }
}
