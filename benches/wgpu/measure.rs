//! Tables of rows that take turns: enqueueing alone, and until the work is known to be done.

use std::time::{Duration, Instant};

use crate::support::counting::Allocations;
use crate::support::is_smoke;

/// Something that is enqueued and waited for, again and again.
pub trait Side {
    fn enqueue(&mut self);

    fn wait(&mut self);

    /// Panics where the results are not what so many runs must have come to. Not timed.
    fn verify(&mut self);

    /// What the device says that one run takes it, where it can say so. Not timed.
    fn on_device(&mut self) -> Option<Duration> {
        None
    }
}

/// What is compared with the first row.
pub struct Table<'t> {
    title: String,
    unit: &'static str,
    units: u32,
    rows: Vec<Row<'t>>,
}

struct Row<'t> {
    name: String,
    side: Box<dyn Side + 't>,
    enqueued: Vec<f64>,
    done: Vec<f64>,
    allocations: f64,
    on_device: Option<f64>,
}

/// Nanoseconds a unit, of a row that was measured.
#[derive(Clone, Copy)]
pub struct Figures {
    pub enqueued: f64,
    pub done: f64,
}

/// Rounds of a table, at most.
const ROUNDS: usize = 40;

/// A table of slow rows has fewer rounds, so that it takes no longer than this.
const PATIENCE: Duration = Duration::from_secs(6);

/// How long a turn should take, so that the clock's own cost does not count.
const TURN: Duration = Duration::from_millis(4);

impl<'t> Table<'t> {
    /// An empty table of times for one `unit`, of which each run has so many.
    pub fn new(title: impl Into<String>, unit: &'static str, units: u32) -> Self {
        Table { title: title.into(), unit, units, rows: Vec::new() }
    }

    pub fn row(&mut self, name: impl Into<String>, side: impl Side + 't) {
        let (enqueued, done) = (Vec::with_capacity(ROUNDS), Vec::with_capacity(ROUNDS));
        let side = Box::new(side);
        let (name, allocations) = (name.into(), f64::INFINITY);
        self.rows.push(Row { name, side, enqueued, done, allocations, on_device: None });
    }

    /// Measures in interleaved rounds, prints the table, and returns the minima, row by row.
    pub fn run(mut self) -> Vec<Figures> {
        let (times, rounds) = self.calibrated();
        for _ in 0..rounds {
            self.rows.iter_mut().for_each(|row| row.turn(times, self.units));
        }
        self.rows.iter_mut().for_each(|row| row.finish(self.units));
        self.print();
        self.rows.iter().map(Row::minima).collect()
    }

    /// How often each row runs in a turn, so that the slowest row's turn is as long as it should be, and how many rounds
    /// there are.
    fn calibrated(&mut self) -> (u32, u128) {
        let once: Vec<_> = self.rows.iter_mut().map(|row| row.once().min(row.once())).collect();
        if is_smoke() {
            return (1, 1);
        }
        let slowest = once.iter().max().map_or(1, Duration::as_nanos).max(1);
        let times = (TURN.as_nanos() / slowest).clamp(1, 1000);
        let round = times * once.iter().sum::<Duration>().as_nanos().max(1);
        (times as u32, (PATIENCE.as_nanos() / round).clamp(5, ROUNDS as u128))
    }

    fn print(&self) {
        let (unit, rounds) = (self.unit, self.rows.first().map_or(0, |first| first.done.len()));
        println!("\n{}: nanoseconds a {unit}, {rounds} interleaved rounds", self.title);
        println!(
            "{:<52} {:>9} {:>9} {:>6}   {:>9} {:>9} {:>6} {:>6}   {:>9} {:>7}",
            "", "enqueued", "median", "ratio", "done", "median", "ratio", "median", "on device", "allocs"
        );
        self.rows.iter().for_each(|row| row.print(&self.rows[0]));
    }
}

impl Row<'_> {
    fn once(&mut self) -> Duration {
        let started = Instant::now();
        self.side.enqueue();
        self.side.wait();
        started.elapsed()
    }

    fn turn(&mut self, times: u32, units: u32) {
        let (mut enqueued, mut done, mut allocations) = (Duration::ZERO, Duration::ZERO, 0);
        for _ in 0..times {
            let (before, started) = (Allocations::now(), Instant::now());
            self.side.enqueue();
            enqueued += started.elapsed();
            allocations += before.since().process;
            self.side.wait();
            done += started.elapsed();
        }
        let units = f64::from(times) * f64::from(units);
        self.enqueued.push(enqueued.as_nanos() as f64 / units);
        self.done.push(done.as_nanos() as f64 / units);
        self.allocations = self.allocations.min(allocations as f64 / units);
        self.side.verify();
    }

    /// Sorts the rounds, and asks the device.
    fn finish(&mut self, units: u32) {
        self.enqueued.sort_by(f64::total_cmp);
        self.done.sort_by(f64::total_cmp);
        let asked = (0..if is_smoke() { 1 } else { 10 }).filter_map(|_| self.side.on_device()).min();
        self.on_device = asked.map(|time| time.as_nanos() as f64 / f64::from(units));
    }

    fn print(&self, first: &Row<'_>) {
        let (minima, base) = (self.minima(), first.minima());
        let (enqueued, done, name) = (median(&self.enqueued), median(&self.done), &self.name);
        let (by, to) = (minima.enqueued / base.enqueued, minima.done / base.done);
        let (usually, allocations) = (done / median(&first.done), self.allocations);
        let on_device = self.on_device.map_or("-".into(), |time| format!("{time:.0}"));
        println!(
            "{name:<52} {:>9.0} {enqueued:>9.0} {by:>6.2}   {:>9.0} {done:>9.0} {to:>6.2} {usually:>6.2}   \
             {on_device:>9} {allocations:>7.2}",
            minima.enqueued, minima.done
        );
    }

    fn minima(&self) -> Figures {
        let least = |rounds: &[f64]| rounds.iter().copied().fold(f64::INFINITY, f64::min);
        Figures { enqueued: least(&self.enqueued), done: least(&self.done) }
    }
}

/// As many nodes as there are to be, or fewer that all kinds of chains can have, where it is only seen whether it works.
pub fn nodes(usual: u32) -> u32 {
    if is_smoke() { usual.min(64) } else { usual }
}

fn median(ascending: &[f64]) -> f64 {
    ascending.get(ascending.len() / 2).copied().unwrap_or(f64::NAN)
}
