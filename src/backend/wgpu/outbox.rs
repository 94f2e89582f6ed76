//! What was encoded, on its way to wgpu: in the order in which it was given up, by whoever needs it or by a thread of the
//! device's.
//!
//! To end an encoder costs twice what it costs to record into it, and a submission as much as dozens of dispatches. So whoever
//! launches leaves that to the device's thread, while he records what comes next.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::backend::fault::Severity;
use crate::backend::wgpu::Machine;
use crate::backend::wgpu::encoder::Encoder;
use crate::backend::wgpu::landing::Flight;
use crate::backend::wgpu::notice::Notice;
use crate::backend::wgpu::queue::Shared;
use crate::backend::wgpu::scope::scoped;
use crate::backend::wgpu::stamp::Reading;
use crate::backend::{Call, Fault, exit};
use crate::callback::OnDevice;

/// The parcels of a device that are to be sent.
pub(crate) struct Outbox {
    /// Held by whoever sends: parcels go one at a time, in their order.
    turn: Mutex<()>,
    waiting: Mutex<Waiting>,
    bell: Condvar,
    /// Counts what was left to the thread, and what is about to be.
    stirs: AtomicU64,
    /// How long the thread looks for more before it sleeps, and whoever waits for his turn before he does.
    patience: Duration,
}

#[derive(Default)]
struct Waiting {
    parcels: VecDeque<(Arc<Machine>, Parcel)>,
    /// Whether the device has its thread: it gets one when there is first something to leave to it.
    has_thread: bool,
    /// Whether the thread ends when nothing waits.
    ended: bool,
}

/// What a slot encoded since the last one, and whom to tell.
pub(crate) struct Parcel {
    pub(crate) shared: Arc<Shared>,
    pub(crate) encoder: Encoder,
    pub(crate) flights: Vec<Flight>,
    pub(crate) readings: Vec<Reading>,
    /// The last operation in it.
    pub(crate) upto: u64,
    pub(crate) notice: Arc<Notice>,
}

/// So many parcels may wait: whoever has another one is faster than the thread, and sends them himself.
const MOST: usize = 2;

impl Outbox {
    pub(crate) fn new(patience: Duration) -> Self {
        Outbox {
            turn: Mutex::default(),
            waiting: Mutex::default(),
            bell: Condvar::new(),
            stirs: AtomicU64::new(0),
            patience,
        }
    }

    /// Sends a parcel now, after those that wait. It comes back empty, but for the room that it has.
    pub(crate) fn send(&self, machine: &Arc<Machine>, parcel: &mut Parcel) {
        let turn = self.turn();
        _ = self.send_waiting(&turn);
        parcel.send(machine);
    }

    /// Leaves a parcel to the device's thread; returns it if there is none, or it does not keep up.
    pub(crate) fn leave(self: &Arc<Self>, machine: &Arc<Machine>, parcel: Parcel) -> Option<Parcel> {
        let mut waiting = self.waiting.lock();
        if waiting.ended || waiting.parcels.len() >= MOST {
            return Some(parcel);
        }
        waiting.has_thread = waiting.has_thread || self.start().is_ok();
        if !waiting.has_thread {
            return Some(parcel);
        }
        waiting.parcels.push_back((machine.clone(), parcel));
        drop(waiting);
        self.rouse();
        None
    }

    /// Has the thread awake by the time that something is left to it: to wake up takes longer than to record a dozen launches.
    pub(crate) fn rouse(&self) {
        // Relaxed: who comes a moment too late finds the thread asleep, and wakes it.
        self.stirs.fetch_add(1, Ordering::Relaxed);
        self.bell.notify_one();
    }

    /// Sees to it that all parcels that were left so far are sent.
    pub(crate) fn settle(&self) {
        let turn = self.turn();
        _ = self.send_waiting(&turn);
    }

    /// Ends the thread, once nothing waits.
    pub(crate) fn end(&self) {
        self.waiting.lock().ended = true;
        self.bell.notify_one();
    }

    fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let outbox = self.clone();
        let thread = std::thread::Builder::new().name("dacapo-wgpu-send".to_owned());
        thread.spawn(move || outbox.run()).map(drop)
    }

    fn run(&self) {
        let mut last = None;
        while self.wait(last) {
            // Before any lock: at the end of the process it is not given any more.
            let _hold = exit::hold();
            last = self.send_waiting(&self.turn());
        }
    }

    /// Blocks until something waits; false if nothing will. Until it sleeps, it looks how far the device has come: the sooner
    /// it is known to have nothing to do, the sooner it gets the next parcel.
    fn wait(&self, mut last: Option<Arc<Machine>>) -> bool {
        loop {
            let seen = self.stirs.load(Ordering::Relaxed);
            let mut waiting = self.waiting.lock();
            if !waiting.parcels.is_empty() {
                return true;
            }
            if waiting.ended {
                return false;
            }
            drop(waiting);
            let hold = exit::hold();
            let stirred = spin(self.patience, || {
                last.iter().for_each(|machine| _ = machine.poll(wgpu::PollType::Poll));
                self.stirs.load(Ordering::Relaxed) != seen
            });
            if stirred {
                continue;
            }
            last = None;
            drop(hold);
            waiting = self.waiting.lock();
            if waiting.parcels.is_empty() && !waiting.ended {
                self.bell.wait(&mut waiting);
            }
        }
    }

    /// The right to send. Whoever has it is soon done, and to be woken up by him takes longer than to wait for him.
    fn turn(&self) -> MutexGuard<'_, ()> {
        let mut turn = None;
        spin(self.patience, || {
            turn = self.turn.try_lock();
            turn.is_some()
        });
        turn.unwrap_or_else(|| self.turn.lock())
    }

    /// Sends what waits, and returns whose the last of it was.
    fn send_waiting(&self, _turn: &MutexGuard<'_, ()>) -> Option<Arc<Machine>> {
        let mut last = None;
        while let Some((machine, mut parcel)) = self.next() {
            parcel.send(&machine);
            last = Some(machine);
        }
        last
    }

    fn next(&self) -> Option<(Arc<Machine>, Parcel)> {
        self.waiting.lock().parcels.pop_front()
    }
}

/// Asks until it is so, or the time is up: whether it is so.
fn spin(patience: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    if is_so() {
        return true;
    }
    let since = Instant::now();
    while since.elapsed() < patience {
        (0..32).for_each(|_| std::hint::spin_loop());
        if is_so() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

impl Parcel {
    /// Hands it to wgpu. What that refuses is ours: nobody knows any more what was written and what was not.
    fn send(&mut self, machine: &Arc<Machine>) {
        // Callbacks of the program's that run in here must not wait for what this thread is in the middle of.
        let _on_device = OnDevice::enter();
        if !self.encoder.is_empty() {
            match self.submit(machine) {
                Ok(index) => {
                    let completed = self.shared.completed();
                    let mut submissions = self.shared.submissions.lock();
                    while submissions.pop_front_if(|(seq, _)| *seq <= completed).is_some() {}
                    submissions.push_back((self.upto, index));
                    drop(submissions);
                    machine.check(Call::Execute);
                }
                Err(fault) => machine.lose(&fault),
            }
            if let Some(lost) = machine.poison.error() {
                self.flights.drain(..).for_each(|flight| flight.fail(&lost));
            }
        }
        let notice = self.notice.clone();
        machine.queue.on_submitted_work_done(move || drop(notice));
    }

    fn submit(&mut self, machine: &Arc<Machine>) -> Result<wgpu::SubmissionIndex, Fault> {
        let Parcel { shared, encoder, flights, readings, upto, notice } = self;
        let submit = || scoped(&machine.device, Call::Execute, || machine.queue.submit(encoder.finish()));
        let submitted = catch_unwind(AssertUnwindSafe(submit));
        let panicked =
            |_| Err(Fault::new(Call::Execute, Severity::Sticky, "a callback panicked in a submission"));
        let index = submitted.unwrap_or_else(panicked)?;
        scoped(&machine.device, Call::Execute, || {
            encoder.uploads.recall(machine);
            let awaited = flights.iter().filter_map(Flight::into);
            shared.out.lock().extend(awaited.map(|into| (*upto, into)));
            flights.drain(..).for_each(|flight| flight.request(machine, notice.clone()));
            readings.drain(..).for_each(|reading| reading.request(machine, notice.clone()));
            index
        })
    }
}
