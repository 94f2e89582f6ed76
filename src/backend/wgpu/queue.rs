//! The queue of a slot: what was encoded, submitted and done of its operations, and those that must wait on the host.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::mem::take;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex};
use static_assertions::assert_impl_all;

use crate::backend::command::{Stamp, Work};
use crate::backend::wgpu::bind::Groups;
use crate::backend::wgpu::encoder::Encoder;
use crate::backend::wgpu::graph::WgpuExec;
use crate::backend::wgpu::landing::{Arrival, Flight};
use crate::backend::wgpu::notice::Notice;
use crate::backend::wgpu::outbox::Parcel;
use crate::backend::wgpu::pace::Pace;
use crate::backend::wgpu::scratch::Scratch;
use crate::backend::wgpu::stamp::Reading;
use crate::backend::wgpu::steps::Steps;
use crate::backend::wgpu::{Machine, Wgpu, worker};
use crate::backend::{Command, Fault, Submitter};
use crate::error::Error;
use crate::failures::Reports;
use crate::order::Mark;
use crate::readback::Readback;

/// A slot's queue. It goes with its device, and does nothing then: whoever lets go of that may be a callback inside a
/// submission of this very slot. The watch thread submits what is left, and closes the slot.
pub struct WgpuQueue {
    pub(crate) shared: Arc<Shared>,
    pub(crate) machine: Arc<Machine>,
}

/// What outlives the queue, until the device is done with it.
pub(crate) struct Shared {
    pub(crate) index: u32,
    pub(crate) state: Mutex<State>,
    /// Something was encoded, done, or added to the backlog.
    pub(crate) moved: Condvar,
    completed: AtomicU64,
    /// Submissions that are not done, as far as wgpu has told.
    pub(crate) in_flight: AtomicU32,
    /// What was submitted last by each submission that may not be done.
    pub(crate) submissions: Mutex<VecDeque<(u64, wgpu::SubmissionIndex)>>,
    /// Reads that were submitted, by their operation or a later one: on a lost device wgpu may never tell of them.
    pub(crate) out: Mutex<VecDeque<(u64, Arc<Readback>)>>,
}

/// What the lock of a queue guards.
pub(crate) struct State {
    pub(crate) encoder: Encoder,
    pub(crate) groups: Groups,
    pub(crate) scratch: Scratch,
    /// Room for the steps of one command.
    pub(crate) steps: Steps,
    /// Reads that were encoded and not submitted.
    pub(crate) flights: Vec<Flight>,
    /// Stamps that note the host's time when all before them is done.
    pub(crate) stamps: Vec<Arc<Stamp>>,
    /// Times that were encoded and not submitted.
    pub(crate) readings: Vec<Reading>,
    /// So many commands make the next submission, unless a replay knows better.
    pub(crate) enough: u32,
    /// The last operation that was encoded, or joined the backlog.
    accepted: u64,
    /// The last operation that was encoded.
    pub(crate) encoded: u64,
    /// The last one that was submitted, or left to be.
    pub(crate) flushed: u64,
    /// The notice of the last submission.
    last: Weak<Notice>,
    /// The last one that was encoded when the watch thread looked.
    seen: u64,
    /// What waits for the host.
    pub(crate) backlog: VecDeque<Task>,
    /// Whether the slot's thread has work: until it is done with all, everything that comes joins the backlog.
    pub(crate) behind: bool,
    pub(crate) worker: Worker,
    /// Whether the slot's thread ends when it has no more work.
    pub(crate) closed: bool,
}

/// Whether the slot has its thread already: most never need one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worker {
    None,
    Started,
}

/// One operation that could not be encoded at once.
pub(crate) enum Task {
    Run { seq: u64, by: Submitter, command: Command<Wgpu> },
    Fail { seq: u64, command: Command<Wgpu>, cause: Arc<Error> },
    Replay { mark: Mark, by: Submitter, exec: Arc<WgpuExec>, reports: Arc<Reports> },
    FailReplay { seq: u64, exec: Arc<WgpuExec>, cause: Arc<Error> },
    Wait { on: Arc<Shared>, seq: u64 },
}

/// When what was encoded is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Before the call returns.
    Now,
    /// After what was given up before it; by the device's thread, if that is worth waking it up.
    InTurn,
}

/// Submissions of one queue that may be in flight before the next operation waits.
const MOST_SUBMISSIONS: u32 = 64;

impl WgpuQueue {
    pub(crate) fn new(machine: &Arc<Machine>, index: u32) -> Self {
        let state = State {
            encoder: Encoder::default(),
            groups: Groups::new(machine.bind_groups),
            scratch: Scratch::default(),
            steps: Steps::new(),
            flights: Vec::new(),
            stamps: Vec::new(),
            readings: Vec::new(),
            enough: machine.pace.first,
            accepted: 0,
            encoded: 0,
            flushed: 0,
            last: Weak::new(),
            seen: 0,
            backlog: VecDeque::new(),
            behind: false,
            worker: Worker::None,
            closed: false,
        };
        let shared = Arc::new(Shared {
            index,
            state: Mutex::new(state),
            moved: Condvar::new(),
            completed: AtomicU64::new(0),
            in_flight: AtomicU32::new(0),
            submissions: Mutex::default(),
            out: Mutex::default(),
        });
        machine.queues.lock().push(shared.clone());
        WgpuQueue { shared, machine: machine.clone() }
    }

    /// Encodes an operation, or adds it to what waits for the host.
    pub(crate) fn submit(&self, seq: u64, by: &Submitter, command: &mut Command<Wgpu>) -> Result<(), Fault> {
        let mut state = self.shared.state.lock();
        if state.behind || matches!(command.job.0, Work::HostCall { .. }) {
            self.start_worker(&mut state)?;
            let command = std::mem::replace(command, Command::taken());
            self.defer(&mut state, Task::Run { seq, by: by.clone(), command });
            return Ok(());
        }
        state.run(&self.machine, command.view())?;
        self.shared.encoded(&self.machine, &mut state, seq);
        Ok(())
    }

    pub(crate) fn submit_failure(&self, seq: u64, command: &mut Command<Wgpu>, cause: Arc<Error>) {
        let mut state = self.shared.state.lock();
        if state.behind {
            let command = std::mem::replace(command, Command::taken());
            return self.defer(&mut state, Task::Fail { seq, command, cause });
        }
        crate::backend::outcome::fail(command.view(), &cause);
        self.shared.encoded(&self.machine, &mut state, seq);
    }

    pub(crate) fn replay(
        &self,
        seq: u64,
        by: &Submitter,
        exec: &Arc<WgpuExec>,
        reports: &Arc<Reports>,
    ) -> Result<(), Fault> {
        let mark = Mark { slot: self.shared.index, seq };
        let mut state = self.shared.state.lock();
        if state.behind || exec.calls_host() {
            self.start_worker(&mut state)?;
            let (exec, reports) = (exec.clone(), reports.clone());
            self.defer(&mut state, Task::Replay { mark, by: by.clone(), exec, reports });
            return Ok(());
        }
        let enough = self.shared.enough(&self.machine, &mut state, exec.part());
        exec.replay(&self.machine, &self.shared, &mut state, mark, reports, enough);
        self.shared.encoded_in_parts(&self.machine, &mut state, seq, enough);
        Ok(())
    }

    pub(crate) fn replay_failure(&self, seq: u64, exec: &Arc<WgpuExec>, cause: Arc<Error>) {
        let mut state = self.shared.state.lock();
        if state.behind {
            return self.defer(&mut state, Task::FailReplay { seq, exec: exec.clone(), cause });
        }
        exec.fail(&cause);
        self.shared.encoded(&self.machine, &mut state, seq);
    }

    /// Makes what follows come after operation `seq` of `on`: what is submitted earlier runs earlier.
    pub(crate) fn wait_for(&self, on: &Arc<Shared>, seq: u64) -> Result<(), Fault> {
        let mut theirs = on.state.lock();
        if theirs.encoded >= seq {
            on.flush(&self.machine, &mut theirs, When::InTurn);
            return Ok(());
        }
        drop(theirs);
        let mut state = self.shared.state.lock();
        self.start_worker(&mut state)?;
        self.defer(&mut state, Task::Wait { on: on.clone(), seq });
        Ok(())
    }

    /// Sees to it that the slot has its thread.
    fn start_worker(&self, state: &mut State) -> Result<(), Fault> {
        if state.worker == Worker::None {
            worker::start(&self.machine, &self.shared)?;
            state.worker = Worker::Started;
        }
        Ok(())
    }

    /// Leaves a task to the slot's thread, which is there.
    fn defer(&self, state: &mut State, task: Task) {
        state.accepted = task.seq().unwrap_or(state.accepted);
        state.behind = true;
        state.backlog.push_back(task);
        self.shared.moved.notify_all();
        self.machine.watch.notice();
    }

    /// Blocks while more is under way than may be.
    pub(crate) fn throttle(&self) {
        let (machine, shared) = (&self.machine, &self.shared);
        if shared.in_flight.load(Ordering::Relaxed) >= MOST_SUBMISSIONS {
            machine.poll(wgpu::PollType::Poll);
            machine.arrivals.land(machine);
        }
        loop {
            let state = shared.state.lock();
            let behind = state.accepted.saturating_sub(shared.completed());
            let submissions = shared.in_flight.load(Ordering::Relaxed);
            if behind < machine.in_flight && submissions < MOST_SUBMISSIONS {
                return;
            }
            // Down to half, so that not each of the next operations waits for one.
            let sent = shared.submissions.lock();
            // The parts of a replay carry the number of what came before it, which may be done.
            let completed = shared.completed();
            let oldest = sent.iter().skip(sent.len() / 2).map(|(seq, _)| *seq).find(|seq| *seq > completed);
            drop(sent);
            let half = state.accepted.saturating_sub(machine.in_flight / 2);
            let until = if submissions >= MOST_SUBMISSIONS { oldest.unwrap_or(half) } else { half };
            drop(state);
            match shared.block(machine, until, None) {
                // If that was done already, it is only the news of the rest that is missing.
                Ok(true) => _ = machine.poll(wgpu::PollType::Poll),
                Ok(false) | Err(_) => return,
            }
        }
    }
}

impl State {
    /// Takes what was encoded.
    fn pack(&mut self, shared: Arc<Shared>, notice: Arc<Notice>) -> Parcel {
        Parcel {
            shared,
            encoder: take(&mut self.encoder),
            flights: take(&mut self.flights),
            readings: take(&mut self.readings),
            upto: self.encoded,
            notice,
        }
    }

    /// Takes back the room of a parcel that was sent.
    fn unpack(&mut self, parcel: Parcel) {
        let Parcel { encoder, flights, readings, .. } = parcel;
        (self.encoder, self.flights, self.readings) = (encoder, flights, readings);
    }
}

impl Shared {
    /// The last operation that is known to be done, with all that it gives.
    #[inline]
    pub(crate) fn completed(&self) -> u64 {
        // Acquire pairs with `complete`: who sees an operation done sees what landed before.
        self.completed.load(Ordering::Acquire)
    }

    /// Notes that operation `seq`, and all before it, is done and has landed.
    pub(crate) fn complete(&self, seq: u64) {
        let mut out = self.out.lock();
        while out.pop_front_if(|(upto, _)| *upto <= seq).is_some() {}
        drop(out);
        self.completed.fetch_max(seq, Ordering::Release);
        self.moved.notify_all();
    }

    /// The device is lost: nothing comes of what was submitted.
    pub(crate) fn give_up(&self, lost: &Error) {
        let out = std::mem::take(&mut *self.out.lock());
        out.into_iter().for_each(|(_, into)| into.fail(lost.clone()));
    }

    /// Notes that operation `seq` is encoded, and submits if it is time.
    pub(crate) fn encoded(self: &Arc<Self>, machine: &Arc<Machine>, state: &mut State, seq: u64) {
        self.starts_anew(machine, state);
        // More than half of what may be in flight would have to be waited for as a whole.
        let enough = state.enough.min(machine.most_at_once());
        if Pace::is_near(state.encoder.weight, enough) {
            machine.outbox.rouse();
        }
        self.note(machine, state, seq);
        self.submit_in_time(machine, state, enough, When::InTurn);
    }

    /// The same for a replay that is submitted in parts of so many commands.
    pub(crate) fn encoded_in_parts(
        self: &Arc<Self>,
        machine: &Arc<Machine>,
        state: &mut State,
        seq: u64,
        enough: u32,
    ) {
        self.note(machine, state, seq);
        // What a replay costs is what the thread would do, and nothing is recorded meanwhile: only waking it up would be added.
        self.submit_in_time(machine, state, enough, When::Now);
    }

    fn note(&self, machine: &Machine, state: &mut State, seq: u64) {
        state.encoded = seq;
        state.accepted = state.accepted.max(seq);
        machine.watch.notice();
    }

    /// How many commands are enough for a submission of a replay whose equal parts have so many: more, while the device has
    /// other work to do.
    pub(crate) fn enough(&self, machine: &Machine, state: &mut State, part: u32) -> u32 {
        if self.starts_anew(machine, state) { part } else { part.max(state.enough) }
    }

    /// Whether the device has nothing to do, so that the next submission is as small as the first.
    fn starts_anew(&self, machine: &Machine, state: &mut State) -> bool {
        // Relaxed: a stale number makes one submission smaller or larger than it might be.
        let is_idle = self.in_flight.load(Ordering::Relaxed) == 0;
        if is_idle {
            state.enough = machine.pace.first;
        }
        is_idle
    }

    /// Submits what was encoded if it is enough, or somebody waits for it.
    pub(crate) fn submit_in_time(
        self: &Arc<Self>,
        machine: &Arc<Machine>,
        state: &mut State,
        enough: u32,
        when: When,
    ) {
        let awaited = !state.flights.is_empty() || !state.stamps.is_empty() || state.encoder.is_urgent;
        if state.encoder.weight >= enough || awaited {
            state.enough = (state.enough + machine.pace.more).min(machine.pace.most);
            self.flush(machine, state, if awaited { When::Now } else { when });
        }
    }

    /// Submits what was encoded, for the watch thread, if some of it was there when that looked last or nothing came since: else
    /// somebody is encoding, submits by himself when it is enough, and must not be made to wait.
    pub(crate) fn flush_old(self: &Arc<Self>, machine: &Arc<Machine>, state: &mut State) {
        if state.closed || state.flushed < state.seen || state.encoded == state.seen {
            self.flush(machine, state, When::Now);
        }
        state.seen = state.encoded;
    }

    /// Nothing more will come: lets the slot's thread end when it has no more work.
    pub(crate) fn close(&self, state: &mut State) {
        state.closed = true;
        self.moved.notify_all();
    }

    /// Submits all that was encoded.
    pub(crate) fn flush(self: &Arc<Self>, machine: &Arc<Machine>, state: &mut State, when: When) {
        if state.flushed >= state.encoded && state.encoder.is_empty() {
            return;
        }
        let sends = !state.encoder.is_empty();
        let (upto, stamps) = (state.encoded, take(&mut state.stamps));
        state.flushed = upto;
        // Acquire pairs with the news: what was in flight has arrived by then.
        if !sends && stamps.is_empty() && self.in_flight.load(Ordering::Acquire) == 0 {
            machine.arrivals.push(Arrival::Done(self.clone(), upto));
            return;
        }
        let is_worth_it = state.encoder.weight >= Pace::WORTH;
        let notice = self.notice(machine, state, stamps);
        let mut parcel = state.pack(self.clone(), notice);
        if when == When::InTurn && is_worth_it {
            match machine.outbox.leave(machine, parcel) {
                None => return,
                Some(back) => parcel = back,
            }
        }
        machine.outbox.send(machine, &mut parcel);
        state.unpack(parcel);
    }

    /// What tells that all that was encoded so far is done, and not before what comes before it.
    fn notice(
        self: &Arc<Self>,
        machine: &Arc<Machine>,
        state: &mut State,
        stamps: Vec<Arc<Stamp>>,
    ) -> Arc<Notice> {
        let last = state.last.upgrade();
        // Acquire pairs with the last notice's drop: one that cannot be chained to any more tells first what it has to tell.
        while last.is_none() && self.in_flight.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
        }
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        let (shared, machine) = (self.clone(), Arc::downgrade(machine));
        let next = Mutex::default();
        let notice = Arc::new(Notice { shared, machine, stamps, upto: state.encoded, next });
        if let Some(last) = last {
            *last.next.lock() = Some(notice.clone());
        }
        state.last = Arc::downgrade(&notice);
        notice
    }
}

assert_impl_all!(WgpuQueue: Send, Sync);
