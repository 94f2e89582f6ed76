//! What the device gives the host, on its way: the bytes of reads, and the times of stamps.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::backend::command::Stamp;
use crate::backend::cuda::Machine;
use crate::backend::cuda::event::{Event, Purpose};
use crate::backend::cuda::late::Verdict;
use crate::backend::outcome;
use crate::callback::OnDevice;
use crate::error::Error;
use crate::memory::staging::Room;
use crate::readback::{Readback, wake};

/// No operation has this number.
const NONE: u64 = u64::MAX;

/// What is in flight on one queue, in its order.
pub(crate) struct Landings {
    state: Mutex<State>,
    /// The operation of the first one, or a larger number than any, so that who waits for something else takes no lock.
    first: AtomicU64,
}

#[derive(Default)]
struct State {
    flights: VecDeque<Flight>,
    /// The last stamp that landed, which the next one is measured from.
    last: Option<(Event, Instant)>,
}

/// One thing on its way.
pub(crate) struct Flight {
    pub(crate) seq: u64,
    pub(crate) load: Load,
}

pub(crate) enum Load {
    /// The device writes `room`, which nobody else has. The verdict is that of a late failure, if there can be one.
    Read {
        into: Arc<Readback>,
        room: Room,
        verdict: Option<Verdict>,
    },
    Stamp {
        at: Arc<Stamp>,
        event: Event,
    },
}

type Wakers = SmallVec<[Waker; 2]>;

impl Default for Landings {
    fn default() -> Self {
        Landings { state: Mutex::default(), first: AtomicU64::new(NONE) }
    }
}

impl Landings {
    pub(crate) fn push(&self, flight: Flight) {
        let mut state = self.state.lock();
        state.flights.push_back(flight);
        self.note(&state);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first() == NONE
    }

    /// The operation of the first one that has not landed, or a larger number than any.
    #[inline]
    pub(crate) fn first(&self) -> u64 {
        // Acquire pairs with the stores under the lock: who sees the number sees what landed before.
        self.first.load(Ordering::Acquire)
    }

    /// Under the lock of the state.
    fn note(&self, state: &State) {
        self.first.store(state.flights.front().map_or(NONE, |flight| flight.seq), Ordering::Release);
    }

    /// Lands everything up to operation `completed`. When this returns, all of it has landed, whoever did it.
    pub(crate) fn land(&self, machine: &Machine, completed: u64) {
        if self.is_empty() {
            return;
        }
        let mut wakers = Wakers::new();
        let mut state = self.state.lock();
        while let Some(flight) = state.flights.pop_front_if(|flight| flight.seq <= completed) {
            match flight.load {
                Load::Read { into, room, verdict } => {
                    let failed = verdict.and_then(|verdict| verdict.of(0));
                    let outcome = failed.map_or(Ok(()), |cause| Err(outcome::carried(&cause)));
                    wakers.extend(into.settle(room, outcome));
                }
                Load::Stamp { at, event } => state.stamp(machine, &at, event),
            }
        }
        self.note(&state);
        drop(state);
        wake_all(wakers);
    }

    /// Tells everybody that nothing will come. Where the device may still write is leaked.
    pub(crate) fn fail(&self, error: &Error) {
        if self.is_empty() {
            return;
        }
        let mut wakers = Wakers::new();
        let mut state = self.state.lock();
        for flight in state.flights.drain(..) {
            match flight.load {
                Load::Read { into, room, .. } => {
                    std::mem::forget(room);
                    wakers.extend(into.settle(Room::default(), Err(error.clone())));
                }
                Load::Stamp { at, .. } => *at.lock() = Some(Err(error.clone())),
            }
        }
        self.note(&state);
        drop(state);
        wake_all(wakers);
    }
}

impl State {
    /// The time of a stamp, by the device's clock from the stamp before it.
    fn stamp(&mut self, machine: &Machine, at: &Stamp, event: Event) {
        let bound = machine.context.bind();
        let instant = match &self.last {
            None => Ok(Instant::now()),
            Some((earlier, when)) => bound
                .and_then(|_bound| event.since(earlier))
                .map(|elapsed| when.checked_add(milliseconds(elapsed)).unwrap_or(*when)),
        };
        *at.lock() = Some(instant.map_err(|fault| machine.poison.absorb(fault)));
        let now = at.lock().as_ref().and_then(|noted| noted.as_ref().ok().copied());
        let before = self.last.replace((event, now.unwrap_or_else(Instant::now)));
        before.into_iter().for_each(|(event, _)| machine.events.give(Purpose::Time, event));
    }
}

/// A time of the driver's; nothing, where it has no meaning.
fn milliseconds(time: f32) -> Duration {
    Duration::try_from_secs_f64(f64::from(time.max(0.0)) / 1e3).unwrap_or_default()
}

/// Wakers are the user's code: called with no lock held, and with no way back into this crate.
fn wake_all(wakers: Wakers) {
    let _on_device = OnDevice::enter();
    wakers.into_iter().for_each(|waker| wake(Some(waker)));
}
