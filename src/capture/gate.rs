//! The one atomic that decides how a window ends, between its owner and any thread that would evict it.
#![forbid(unsafe_code)]

use std::fmt;

use static_assertions::assert_impl_all;

use super::sync::{AtomicU8, Ordering};

/// Decides how one window ends. A window has a gate of its own, so an evictor that comes late finds the gate
/// of the window it meant, already shut, and never the next window of that stream.
///
/// ```text
/// open --try_seal (owner)--> sealing --close (owner)--> closed
///  | \--close (owner)---------------------------------> closed
///  \----try_evict (any thread)--> evicted
/// ```
///
/// `closed` and `evicted` are final. Eviction wins only from `open`, so a graph that is being sealed is never
/// taken away, and an evicted window never seals.
pub(crate) struct Gate {
    state: AtomicU8,
}

assert_impl_all!(Gate: Send, Sync);

/// Where a window is on its way from `prepare` to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GateState {
    /// Prepared or recording: the owner may go on, and anyone may evict.
    Open,
    /// The owner's `end` is turning the recording into a graph; eviction comes too late.
    Sealing,
    /// The owner ended it, by whichever way.
    Closed,
    /// Another thread ended it; the owner learns so from its next call.
    Evicted,
}

impl Gate {
    /// The gate of a window that has just been prepared.
    pub(crate) fn new() -> Self {
        Self { state: AtomicU8::new(OPEN) }
    }

    /// Where the window is at this moment. `Open` may be out of date when it arrives; the final states cannot
    /// be.
    pub(crate) fn state(&self) -> GateState {
        // Acquire, pairing with the Release of every transition: an owner that reads `Evicted` sees whatever
        // the evictor wrote before it won, such as who it is, for the error to name.
        decode(self.state.load(Ordering::Acquire))
    }

    /// The owner's claim, in `end`, to make the graph. Once it succeeds, the owner must `close`.
    ///
    /// # Errors
    /// The state that forbids it, left as it was: `Evicted`, or, had `end` already run, `Sealing` or
    /// `Closed`.
    pub(crate) fn try_seal(&self) -> Result<(), GateState> {
        self.leave_open(SEALING)
    }

    /// Any thread's claim to end the window without a graph; true for exactly one caller, and only if the
    /// owner had not begun to end it. The winner discards the recording.
    pub(crate) fn try_evict(&self) -> bool {
        self.leave_open(EVICTED).is_ok()
    }

    /// The owner's last word: after sealing, or instead of it in `cancel`, `abort` and `drop`. Returns the
    /// state it found: `Open` and `Sealing` are now `Closed` by this call, while `Closed` and `Evicted` stay,
    /// so that an evicted window says so for ever and cleaning up twice does nothing.
    pub(crate) fn close(&self) -> GateState {
        match self.leave_open(CLOSED) {
            Ok(()) => GateState::Open,
            Err(GateState::Sealing) => {
                // A plain store overwrites nobody: only the owner leaves `sealing`, and this is the owner.
                // Release: whoever reads `Closed` sees what the owner did before.
                self.state.store(CLOSED, Ordering::Release);
                GateState::Sealing
            }
            Err(found) => found,
        }
    }

    /// Moves from open to `next`, or says where the gate is instead.
    fn leave_open(&self, next: u8) -> Result<(), GateState> {
        // A compare-exchange on one atomic has one winner, whatever the ordering. Release on success: whoever
        // reads the new state sees what the winner did before it. Acquire is not needed there, since OPEN is
        // written only by the constructor, which reached this thread together with the gate; the recording
        // has a lock of its own. Acquire on failure: the loser sees what the winner did before it, as in
        // `state`.
        match self.state.compare_exchange(OPEN, next, Ordering::Release, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(state) => Err(decode(state)),
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gate").field(&self.state()).finish()
    }
}

const OPEN: u8 = 0;
const SEALING: u8 = 1;
const CLOSED: u8 = 2;
const EVICTED: u8 = 3;

fn decode(state: u8) -> GateState {
    match state {
        OPEN => GateState::Open,
        SEALING => GateState::Sealing,
        EVICTED => GateState::Evicted,
        // Only the four constants are ever stored; reading anything else as closed is the answer that permits
        // nothing.
        _ => GateState::Closed,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Gate, GateState};

    #[test]
    fn a_new_gate_is_open() {
        assert_eq!(Gate::new().state(), GateState::Open);
    }

    /// Taking the recorder away from a running `end` would seal an empty graph.
    #[test]
    fn a_sealing_window_is_never_evicted() {
        let gate = Gate::new();
        assert_eq!(gate.try_seal(), Ok(()));
        assert!(!gate.try_evict());
        assert_eq!(gate.state(), GateState::Sealing);
        assert_eq!(gate.close(), GateState::Sealing);
        assert!(!gate.try_evict());
        assert_eq!(gate.state(), GateState::Closed);
    }

    /// An evicted window whose owner still got a graph would be a graph over buffers that lost their pins.
    #[test]
    fn an_evicted_window_never_seals() {
        let gate = Gate::new();
        assert!(gate.try_evict());
        assert_eq!(gate.try_seal(), Err(GateState::Evicted));
    }

    /// Were `close` to overwrite the eviction, the owner's error would say that it had ended the window
    /// itself.
    #[test]
    fn closing_an_evicted_window_leaves_it_evicted() {
        let gate = Gate::new();
        assert!(gate.try_evict());
        assert_eq!(gate.close(), GateState::Evicted);
        assert_eq!(gate.state(), GateState::Evicted);
    }

    /// Two winners would each discard the recording and each write a report.
    #[test]
    fn a_window_is_evicted_once() {
        let gate = Gate::new();
        assert!(gate.try_evict());
        assert!(!gate.try_evict());
    }

    /// `abort` closes and then drops the stream, which closes again.
    #[test]
    fn closing_twice_does_nothing() {
        let gate = Gate::new();
        assert_eq!(gate.close(), GateState::Open);
        assert_eq!(gate.close(), GateState::Closed);
        assert_eq!(gate.try_seal(), Err(GateState::Closed));
        assert!(!gate.try_evict());
    }

    /// `end` that ran twice would hand the same recording to the sealer twice.
    #[test]
    fn a_window_seals_once() {
        let gate = Gate::new();
        assert_eq!(gate.try_seal(), Ok(()));
        assert_eq!(gate.try_seal(), Err(GateState::Sealing));
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::thread;

    use super::super::sync::{Arc, AtomicUsize, Ordering};
    use super::{Gate, GateState};

    /// The owner's error names the evictor, who writes down who he is before he wins.
    #[test]
    fn whoever_finds_the_window_evicted_sees_what_the_evictor_did_before() {
        let finds: [fn(&Gate) -> GateState; 3] =
            [Gate::state, Gate::close, |gate| gate.try_seal().err().unwrap_or(GateState::Open)];
        for find in finds {
            loom::model(move || {
                let (gate, name) = (Arc::new(Gate::new()), Arc::new(AtomicUsize::new(0)));
                let evictor = thread::spawn({
                    let (gate, name) = (Arc::clone(&gate), Arc::clone(&name));
                    move || {
                        name.store(1, Ordering::Relaxed);
                        gate.try_evict()
                    }
                });
                assert!(find(&gate) != GateState::Evicted || name.load(Ordering::Relaxed) == 1);
                evictor.join().unwrap();
            });
        }
    }

    /// An evictor that comes too late and reads `Closed` may report what the owner left behind.
    #[test]
    fn whoever_finds_the_window_closed_sees_what_the_owner_did_before() {
        for seals in [false, true] {
            loom::model(move || {
                let (gate, left) = (Arc::new(Gate::new()), Arc::new(AtomicUsize::new(0)));
                let owner = thread::spawn({
                    let (gate, left) = (Arc::clone(&gate), Arc::clone(&left));
                    move || {
                        assert!(!seals || gate.try_seal().is_ok());
                        left.store(1, Ordering::Relaxed);
                        gate.close()
                    }
                });
                assert!(gate.state() != GateState::Closed || left.load(Ordering::Relaxed) == 1);
                owner.join().unwrap();
            });
        }
    }
}
