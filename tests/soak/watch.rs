//! The threads at work, watched: that all of them get on, and what the device holds meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dacapo::Device;

use crate::worker::{Shared, Worker};

/// A thread that makes no turn for so long never will.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often the watch looks.
const TICK: Duration = Duration::from_millis(5);

pub struct Crew {
    members: Vec<(JoinHandle<Worker>, Arc<AtomicU64>)>,
}

/// The most that the device held, in three times of equal length after a warm-up.
pub struct Held {
    peaks: [usize; 3],
    in_use: [usize; 3],
}

impl Crew {
    pub fn start(shared: &Arc<Shared>, workers: impl Iterator<Item = Worker>) -> Self {
        let members = workers.map(|worker| {
            let (shared, progress) = (shared.clone(), Arc::new(AtomicU64::new(0)));
            let turns = progress.clone();
            (std::thread::spawn(move || worker.run(&shared, &turns)), progress)
        });
        Crew { members: members.collect() }
    }

    /// Looks on for so long, or until a thread ends or stops to get on.
    pub fn watch(&self, device: &Device, duration: Duration) -> Held {
        let (started, mut held) = (Instant::now(), Held { peaks: [0; 3], in_use: [0; 3] });
        let mut stalls = Stalls::new(self);
        let warm = duration / 4;
        while started.elapsed() < duration && stalls.all_get_on(self) {
            std::thread::sleep(TICK);
            let usage = device.memory_usage();
            if let Some(since) = started.elapsed().checked_sub(warm) {
                let third = (since.as_nanos() * 3 / (duration - warm).as_nanos().max(1)).min(2) as usize;
                held.peaks[third] = held.peaks[third].max(usage.held);
                held.in_use[third] = held.in_use[third].max(usage.in_use);
            }
        }
        held
    }

    /// The workers, once all have come to their end.
    ///
    /// Never joins a thread that may not end: the failure of the test ends the process.
    pub fn join(self) -> Result<Vec<Worker>, String> {
        let mut stalls = Stalls::new(&self);
        let running = |crew: &Crew| crew.members.iter().any(|(thread, _)| !thread.is_finished());
        while running(&self) {
            if stalls.is_over(&self) {
                return Err("a thread gets no further".to_owned());
            }
            std::thread::sleep(TICK);
        }
        let joined = self.members.into_iter().map(|(thread, _)| thread.join());
        joined.collect::<Result<_, _>>().map_err(|_| "a thread failed, as it said above".to_owned())
    }
}

/// Since when each thread has made no turn.
struct Stalls(Vec<(u64, Instant)>);

impl Stalls {
    fn new(crew: &Crew) -> Self {
        Stalls(
            crew.members.iter().map(|(_, turns)| (turns.load(Ordering::Relaxed), Instant::now())).collect(),
        )
    }

    fn all_get_on(&mut self, crew: &Crew) -> bool {
        !self.is_over(crew) && crew.members.iter().all(|(thread, _)| !thread.is_finished())
    }

    fn is_over(&mut self, crew: &Crew) -> bool {
        for ((last, since), (thread, turns)) in self.0.iter_mut().zip(&crew.members) {
            let turns = turns.load(Ordering::Relaxed);
            if turns != *last || thread.is_finished() {
                (*last, *since) = (turns, Instant::now());
            }
        }
        self.0.iter().any(|(_, since)| since.elapsed() > PATIENCE)
    }
}

impl Held {
    /// Less than an eighth and a few large buffers is luck, and not a leak.
    pub fn assert_plateau(&self) {
        let [_, middle, last] = self.peaks;
        let slack = middle / 8 + (8 << 20);
        assert!(last <= middle + slack, "held bytes grow: {self}");
    }
}

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |bytes: [usize; 3]| bytes.map(|bytes| bytes >> 20);
        write!(f, "MiB held at most, by thirds {:?}, in use {:?}", mib(self.peaks), mib(self.in_use))
    }
}
