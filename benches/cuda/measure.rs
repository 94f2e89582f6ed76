//! Comparisons of two sides, in interleaved rounds.

use std::time::{Duration, Instant};

use crate::support;
use crate::support::counting::Allocations;

/// One side of a comparison: something that is enqueued, and the wait for its end.
pub struct Side<'s> {
    enqueue: Box<dyn FnMut() + 's>,
    wait: Box<dyn FnMut() + 's>,
    least: Least,
}

/// The least of any round, in nanoseconds a unit: until it was enqueued, and until it was done.
#[derive(Clone, Copy)]
pub struct Least {
    name: &'static str,
    enqueued: f64,
    done: f64,
    allocations: u64,
}

impl<'s> Side<'s> {
    pub fn new(name: &'static str, enqueue: impl FnMut() + 's, wait: impl FnMut() + 's) -> Self {
        let least = Least { name, enqueued: f64::INFINITY, done: f64::INFINITY, allocations: u64::MAX };
        Side { enqueue: Box::new(enqueue), wait: Box::new(wait), least }
    }

    /// Runs it so often; returns what enqueueing a unit took, in nanoseconds, and how long all took.
    fn round(&mut self, times: u32, units: u64) -> (f64, Duration) {
        let (mut enqueued, mut done, mut allocations) = (Duration::ZERO, Duration::ZERO, 0);
        for _ in 0..times {
            let (before, started) = (Allocations::now(), Instant::now());
            (self.enqueue)();
            enqueued += started.elapsed();
            allocations += before.since().process;
            (self.wait)();
            done += started.elapsed();
        }
        let each = |time: Duration| time.as_nanos() as f64 / (f64::from(times) * units as f64);
        let least = &mut self.least;
        (least.enqueued, least.done) = (least.enqueued.min(each(enqueued)), least.done.min(each(done)));
        least.allocations = least.allocations.min(allocations);
        (each(enqueued), done)
    }
}

impl Compared {
    pub fn and(mut self, other: Compared) -> Compared {
        let ([raw, ours], [raw_now, ours_now]) = (self.least, other.least);
        self.longer.extend(other.longer);
        Compared { least: [raw.and(raw_now), ours.and(ours_now)], longer: self.longer }
    }
}

impl Least {
    pub fn and(self, other: Least) -> Least {
        Least {
            name: self.name,
            enqueued: self.enqueued.min(other.enqueued),
            done: self.done.min(other.done),
            allocations: self.allocations.min(other.allocations),
        }
    }
}

/// Two sides that were compared: the least of each, and by how many nanoseconds a unit enqueueing the second took longer
/// than the first, round by round.
pub struct Compared {
    least: [Least; 2],
    longer: Vec<f64>,
}

/// Compares two sides in so many interleaved rounds of a few milliseconds, in which they take turns at being the first.
pub fn measure(rounds: u32, units: u64, mut sides: [Side<'_>; 2]) -> Compared {
    let once = sides.iter_mut().map(|side| side.round(1, units).1.min(side.round(1, units).1)).max();
    let times = Duration::from_millis(4).as_nanos() / once.unwrap_or_default().as_nanos().max(1);
    let times = (times as u32).clamp(1, if support::is_smoke() { 1 } else { 1000 });
    let mut longer = Vec::new();
    for round in 0..rounds {
        let [raw, ours] = &mut sides;
        let (raw, ours) = if round % 2 == 0 {
            let raw = raw.round(times, units);
            (raw, ours.round(times, units))
        } else {
            let ours = ours.round(times, units);
            (raw.round(times, units), ours)
        };
        longer.push(ours.0 - raw.0);
    }
    Compared { least: sides.map(|side| side.least), longer }
}

pub fn report(title: &str, unit: &str, compared: Compared) {
    let Compared { least: [raw, ours], longer } = compared;
    println!("\n{title}: nanoseconds a {unit}, least of all interleaved rounds");
    for Least { name, enqueued, done, allocations } in [raw, ours] {
        let (by, to) = (enqueued / raw.enqueued, done / raw.done);
        println!(
            "{name:<36} enqueued {enqueued:>10.0} ({by:.2})   done {done:>10.0} ({to:.2})   {allocations} allocations"
        );
    }
    let (rounds, longer) = (longer.len(), Times::of(longer.into_iter()));
    let (median, (low, high)) = (longer.median(), longer.interval());
    println!("enqueueing takes longer by {median:.0} ({low:.0} to {high:.0}), median of {rounds} rounds");
}

pub fn rounds(usual: u32) -> u32 {
    if support::is_smoke() { 1 } else { usual }
}

/// The times of one thing, in nanoseconds, ascending.
pub struct Times(Vec<f64>);

impl Times {
    pub fn of(times: impl Iterator<Item = f64>) -> Self {
        let mut times: Vec<f64> = times.collect();
        times.sort_by(f64::total_cmp);
        Times(times)
    }

    pub fn least(&self) -> f64 {
        self.0[0]
    }

    pub fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }

    /// Between which of the times the median of all that might have been measured lies, in 95 of 100 cases.
    pub fn interval(&self) -> (f64, f64) {
        let count = self.0.len() as f64;
        let rank = |by: f64| (count / 2.0 + by * 0.98 * count.sqrt()).clamp(0.0, count - 1.0) as usize;
        (self.0[rank(-1.0)], self.0[rank(1.0)])
    }
}
