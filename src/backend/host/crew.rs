//! The threads that run the independent parts of a graph.
//!
//! Not a thread pool for others: a run of nodes is taken whole, nothing that runs here waits for anything that runs
//! here, and a replay allocates nothing, which a general pool's queue does.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::{Condvar, Mutex};

use crate::backend::host::graph::HostExec;
use crate::callback::{OnDevice, shielded};

/// A device's helpers; the slot that replays works as well.
#[derive(Debug)]
pub(crate) struct Crew {
    shared: Arc<Shared>,
    threads: usize,
}

struct Shared {
    state: Mutex<State>,
    /// There is something to run, or something is done.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ready: VecDeque<(Arc<HostExec>, u32)>,
    helpers: usize,
    closed: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Crew {
    pub(crate) fn new(threads: usize) -> Self {
        let shared = Shared { state: Mutex::default(), changed: Condvar::new() };
        Crew { shared: Arc::new(shared), threads }
    }

    /// Whether there is nobody to help.
    pub(crate) fn is_alone(&self) -> bool {
        self.threads < 2
    }

    /// Runs everything that `first` leads to, with whoever is free, and returns when all of it is done.
    ///
    /// The caller runs parts of its own replay only: another's may be a callback that waits, for this very replay if it
    /// likes, and this replay waits for nobody but its own graph.
    pub(crate) fn run(&self, exec: &Arc<HostExec>, first: &[u32]) {
        let mut state = self.shared.state.lock();
        state.ready.extend(first.iter().map(|run| (exec.clone(), *run)));
        self.hire(&mut state);
        self.shared.changed.notify_all();
        while exec.left.load(Ordering::Acquire) > 0 {
            match state.pop_of(exec) {
                Some(run) => {
                    drop(state);
                    state = self.shared.take(exec.clone(), run);
                }
                None => self.shared.changed.wait(&mut state),
            }
        }
    }

    /// Starts the helpers, once there is something for them to do. Fewer than wanted only make it slower.
    fn hire(&self, state: &mut State) {
        while state.helpers + 1 < self.threads {
            let shared = self.shared.clone();
            let helper = std::thread::Builder::new().name("dacapo-crew".to_owned());
            if helper.spawn(move || shared.help()).is_err() {
                return;
            }
            state.helpers += 1;
        }
    }
}

impl State {
    /// The next run of this replay.
    fn pop_of(&mut self, exec: &Arc<HostExec>) -> Option<u32> {
        let at = self.ready.iter().position(|(of, _)| Arc::ptr_eq(of, exec))?;
        self.ready.remove(at).map(|(_, run)| run)
    }
}

impl Shared {
    fn help(&self) {
        let mut state = self.state.lock();
        while !state.closed {
            match state.ready.pop_front() {
                Some((exec, run)) => {
                    drop(state);
                    state = self.take(exec, run);
                }
                None => self.changed.wait(&mut state),
            }
        }
    }

    /// Runs one run and what it alone was waited for by; hands out the rest. Returns with the lock held.
    fn take(&self, exec: Arc<HostExec>, mut run: u32) -> parking_lot::MutexGuard<'_, State> {
        loop {
            let mut next = None;
            let last = exec.run(run, |ready| match next {
                None => next = Some(ready),
                Some(_) => {
                    self.state.lock().ready.push_back((exec.clone(), ready));
                    // All, since the one that it wakes might be a replay that may not take this run.
                    self.changed.notify_all();
                }
            });
            match next {
                Some(ready) => run = ready,
                None => {
                    // This may be the last reference, and what it lets go of the user's: not under a lock of ours.
                    let on_device = OnDevice::enter();
                    shielded(|| drop(exec));
                    drop(on_device);
                    let state = self.state.lock();
                    if last {
                        self.changed.notify_all();
                    }
                    return state;
                }
            }
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.changed.notify_all();
    }
}
