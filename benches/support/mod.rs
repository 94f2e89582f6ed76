//! Rows that are compared: measured in interleaved rounds first, and then one by one by criterion.
//!
//! The rounds are what ratios come from: every row has its turn in every round, so that a busy neighbour or a clock
//! that changes hits all of them alike, and the minimum over the rounds is the time without such luck. Criterion's
//! figures, which follow, are for one row's distribution and for comparing with an earlier run of the same row.

pub mod counting;

use std::ops::AddAssign;
use std::time::{Duration, Instant};

use criterion::Criterion;

use counting::{Allocations, Counting};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Rounds of a comparison; one in smoke mode.
const ROUNDS: usize = 40;

/// How long a row's turn should take, so that the clock's own cost does not count.
const TURN: Duration = Duration::from_millis(4);

/// Whether everything is only run once, to see that it works: `cargo bench -- --test`, and `cargo test --benches`.
pub fn is_smoke() -> bool {
    let mut bench = false;
    let test = std::env::args().any(|arg| {
        bench |= arg == "--bench";
        arg == "--test"
    });
    test || !bench
}

/// What is compared with the first row.
pub struct Table<'t> {
    title: String,
    unit: &'static str,
    rows: Vec<Row<'t>>,
}

struct Row<'t> {
    name: String,
    /// How many units (calls, nodes) one iteration has.
    units: u64,
    /// Runs so many iterations, and says what those cost.
    run: Box<dyn FnMut(u64) -> Cost + 't>,
}

/// One row's rounds.
struct Measured {
    iterations: u64,
    /// Nanoseconds a unit, ascending.
    times: Vec<f64>,
    /// Allocations a unit, of the whole process, in the leanest round.
    allocations: f64,
}

impl<'t> Table<'t> {
    /// An empty table of times for one `unit`.
    pub fn new(title: impl Into<String>, unit: &'static str) -> Self {
        Table { title: title.into(), unit, rows: Vec::new() }
    }

    /// Adds a row whose iteration has `units` units. `run` runs so many iterations and returns what counts of their cost.
    pub fn row(&mut self, name: impl Into<String>, units: u64, run: impl FnMut(u64) -> Cost + 't) {
        self.rows.push(Row { name: name.into(), units, run: Box::new(run) });
    }

    /// Measures in interleaved rounds and prints the table; then hands every row to criterion.
    pub fn run(mut self, criterion: &mut Criterion) {
        self.rounds();
        let mut group = criterion.benchmark_group(&self.title);
        for Row { name, units, run } in &mut self.rows {
            // Criterion's figures are for an iteration, which is so many units.
            let name = if *units == 1 { name.clone() } else { format!("{units} x {name}") };
            group.bench_function(name, |bencher| bencher.iter_custom(|iterations| run(iterations).time));
        }
        group.finish();
    }

    fn rounds(&mut self) {
        let mut measured: Vec<Measured> = self.rows.iter_mut().map(Row::calibrated).collect();
        for _ in 0..if is_smoke() { 1 } else { ROUNDS } {
            for (row, measured) in self.rows.iter_mut().zip(&mut measured) {
                row.turn(measured);
            }
        }
        for measured in &mut measured {
            measured.times.sort_by(f64::total_cmp);
        }
        self.print(&measured);
    }

    fn print(&self, measured: &[Measured]) {
        let (unit, rounds) = (self.unit, measured.first().map_or(0, |first| first.times.len()));
        println!("\n{}: nanoseconds a {unit}, {rounds} interleaved rounds", self.title);
        println!("{:<56} {:>10} {:>10} {:>8} {:>12}", "", "minimum", "median", "ratio", "allocations");
        let base = measured.first().map_or(1.0, Measured::minimum);
        for (row, measured) in self.rows.iter().zip(measured) {
            let (minimum, median) = (measured.minimum(), measured.median());
            let (ratio, allocations) = (minimum / base, measured.allocations);
            println!("{:<56} {minimum:>10.2} {median:>10.2} {ratio:>8.2} {allocations:>12.3}", row.name);
        }
    }
}

impl Row<'_> {
    /// Warms the row up, and finds how many iterations a turn has.
    fn calibrated(&mut self) -> Measured {
        // Not counted: the first run takes pages and wakes threads, and would pass for a turn that is long enough.
        (self.run)(1);
        let mut iterations = 1;
        let mut cost = (self.run)(iterations);
        while !is_smoke() && cost.time < TURN && iterations < 1 << 30 {
            iterations *= 2;
            cost = (self.run)(iterations);
        }
        Measured { iterations, times: Vec::with_capacity(ROUNDS), allocations: f64::INFINITY }
    }

    fn turn(&mut self, measured: &mut Measured) {
        let units = (self.units * measured.iterations) as f64;
        let cost = (self.run)(measured.iterations);
        measured.allocations = measured.allocations.min(cost.allocations as f64 / units);
        measured.times.push(cost.time.as_nanos() as f64 / units);
    }
}

impl Measured {
    fn minimum(&self) -> f64 {
        self.times.first().copied().unwrap_or(f64::NAN)
    }

    fn median(&self) -> f64 {
        self.times.get(self.times.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

/// What something cost: time, and allocations of the whole process meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub time: Duration,
    pub allocations: u64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, more: Cost) {
        self.time += more.time;
        self.allocations += more.allocations;
    }
}

/// Runs `f`, and returns what that cost.
pub fn cost<T>(f: impl FnOnce() -> T) -> (T, Cost) {
    let (before, started) = (Allocations::now(), Instant::now());
    let value = f();
    let time = started.elapsed();
    (value, Cost { time, allocations: before.since().process })
}

/// Runs `f` so often, and returns what that cost.
pub fn timed(iterations: u64, mut f: impl FnMut()) -> Cost {
    cost(|| (0..iterations).for_each(|_| f())).1
}

/// Criterion for short runs: the comparison came before it.
pub fn criterion() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args()
}
