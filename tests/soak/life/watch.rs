//! The threads at work, watched: that all of them get on, and what the device holds meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dacapo::MemoryUsage;

use super::support::Device;

use super::worker::{Shared, Worker};

/// A thread that makes no turn for so long never will.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often the watch looks.
const TICK: Duration = Duration::from_millis(5);

pub struct Crew {
    members: Vec<(JoinHandle<Worker>, Arc<AtomicU64>)>,
}

/// What the device held, in three times of equal length after a warm-up.
#[derive(Default)]
pub struct Held([Third; 3]);

#[derive(Clone, Copy, Default)]
struct Third {
    peak: usize,
    in_use: usize,
    /// Of what it held, over all looks.
    sum: usize,
    looks: usize,
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
        let (started, mut held) = (Instant::now(), Held::default());
        let mut stalls = Stalls::new(self);
        let warm = duration / 4;
        while started.elapsed() < duration && stalls.all_get_on(self) {
            std::thread::sleep(TICK);
            let usage = device.memory_usage();
            if let Some(since) = started.elapsed().checked_sub(warm) {
                let third = (since.as_nanos() * 3 / (duration - warm).as_nanos().max(1)).min(2) as usize;
                held.0[third].note(usage);
            }
        }
        held
    }

    /// Gives a slow device more time, at most so long, until everything happened that is to.
    pub fn until(&self, everything_happened: impl Fn() -> bool, duration: Duration) {
        let (started, mut stalls) = (Instant::now(), Stalls::new(self));
        while !everything_happened() && started.elapsed() < duration && stalls.all_get_on(self) {
            std::thread::sleep(TICK);
        }
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

impl Third {
    fn note(&mut self, MemoryUsage { held, in_use, .. }: MemoryUsage) {
        self.peak = self.peak.max(held);
        self.in_use = self.in_use.max(in_use);
        self.sum += held;
        self.looks += 1;
    }

    fn mean(&self) -> usize {
        self.sum / self.looks.max(1)
    }
}

impl Held {
    /// That it does not grow, and never is more than pools may hold for a `working_set` of so many bytes: themselves,
    /// what windows and graphs add, the holes between them, and the whole pages that each pool keeps for the next.
    ///
    /// A peak is a matter of luck, a mean hardly.
    pub fn assert_plateau(&self, working_set: usize) {
        let Held([_, middle, last]) = self;
        assert!(last.mean() <= middle.mean() / 8 * 9 + (8 << 20), "held bytes grow: {self}");
        assert!(last.peak <= middle.peak / 2 * 3 + (16 << 20), "the peak grows: {self}");
        assert!(self.0.iter().all(|third| third.peak <= 4 * working_set), "more than pools may hold: {self}");
    }
}

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |of: fn(&Third) -> usize| self.0.map(|third| of(&third) >> 20);
        let (peaks, means, in_use) = (mib(|third| third.peak), mib(Third::mean), mib(|third| third.in_use));
        write!(f, "MiB by thirds: held at most {peaks:?}, on average {means:?}; in use at most {in_use:?}")
    }
}
