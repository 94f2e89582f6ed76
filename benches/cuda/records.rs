//! What it costs to record a graph.

use std::time::{Duration, Instant};

use cudarc::driver::sys;
use dacapo::Device;
use dacapo::cuda::Cuda;

use crate::driver::{Ours, Raw, ok};
use crate::measure::Times;
use crate::support;
use crate::support::counting::{Allocations, uncounted};

/// What one round took, in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Round {
    /// The stream capture, and making what it gave executable.
    capture: f64,
    instantiate: f64,
    /// Making a graph like ours by the driver's own calls, one a node, and making it executable.
    build: f64,
    chain: f64,
    /// Recording ours, which makes it executable as its last step.
    record: f64,
}

/// Recording `nodes` nodes, each thing once a round.
///
/// What a round made lives until the end of its batch, and the next one waits until our library has given its graphs back,
/// which it does on a thread of its own, in the driver's way.
pub fn records(device: &Device<Cuda>, nodes: u64) {
    const BATCH: usize = 8;
    const GIVEN_BACK: Duration = Duration::from_millis(20);
    let mut ours = Ours::new(device, 64);
    let raw = Raw::new(&ours);
    let (mut rounds_of, mut execs, mut graphs) = (Vec::new(), Vec::new(), Vec::new());
    let mut allocations = u64::MAX;
    let batches = if support::is_smoke() { 1 } else { (40_000 / nodes).clamp(6, 60) };
    for batch in 0..batches {
        for turn in 0..BATCH {
            let mut round = Round::default();
            for step in 0..3 {
                match (step + turn) % 3 {
                    0 => {
                        let (captured, graph) = timed(|| raw.capture(nodes, 1));
                        let (instantiated, exec) = timed(|| raw.instantiate(graph));
                        execs.push(exec);
                        (round.capture, round.instantiate) = (captured, instantiated);
                    }
                    1 => {
                        let (built, graph) = timed(|| raw.chain(nodes));
                        let (chain, exec) = timed(|| raw.instantiate(graph));
                        execs.push(exec);
                        (round.build, round.chain) = (built, chain);
                    }
                    _ => {
                        let before = Allocations::now();
                        let mut record = || timed(|| ours.record(nodes as usize, 1));
                        // The first batch, whose times are none of those reported, is counted.
                        let (record, graph) = if batch == 0 { record() } else { uncounted(record) };
                        if batch == 0 {
                            allocations = allocations.min(before.since().process);
                        }
                        graphs.push(graph);
                        round.record = record;
                    }
                }
            }
            rounds_of.push(round);
        }
        // SAFETY: a live executable, used here for the last time; none of its launches is in flight.
        execs.drain(..).for_each(|exec| ok(unsafe { sys::cuGraphExecDestroy(exec) }));
        graphs.clear();
        std::thread::sleep(GIVEN_BACK);
    }
    let timed = rounds_of.get(BATCH..).filter(|rest| !rest.is_empty()).unwrap_or(&rounds_of);
    report_records(nodes, timed, allocations);
}

/// How long `run` takes, in nanoseconds, and what it gives.
fn timed<T>(run: impl FnOnce() -> T) -> (f64, T) {
    let started = Instant::now();
    let made = run();
    (started.elapsed().as_nanos() as f64, made)
}

fn report_records(nodes: u64, rounds: &[Round], allocations: u64) {
    let times = |of: fn(&Round) -> f64| Times::of(rounds.iter().map(|round| of(round) / nodes as f64));
    let (capture, without) = (times(|round| round.capture), times(|round| round.record - round.chain));
    let (both, record) = (times(|round| round.capture + round.instantiate), times(|round| round.record));
    let count = rounds.len();
    println!(
        "\nrecording and ending {nodes} nodes: nanoseconds a node, medians of {count} rounds (95% intervals)"
    );
    for (name, raw, ours) in
        [("with instantiation", &both, &record), ("without instantiation", &capture, &without)]
    {
        let ((raw_low, raw_high), (low, high)) = (raw.interval(), ours.interval());
        let (raw, ours) = (raw.median(), ours.median());
        println!(
            "{name:<22} captured {raw:>8.0} ({raw_low:.0} to {raw_high:.0})   recorded {ours:>8.0} ({low:.0} to {high:.0})   {:.2} ({:.2} to {:.2})",
            ours / raw,
            low / raw_high,
            high / raw_low
        );
    }
    let build = times(|round| round.build);
    let (low, high) = build.interval();
    println!("the driver's own calls  a call a node {:>5.0} ({low:.0} to {high:.0})", build.median());
    let least = |of: fn(&Round) -> f64| times(of).least();
    let without = least(|round| round.record) - least(|round| round.chain);
    let captured = least(|round| round.capture);
    println!(
        "least of each          captured {captured:>8.0}   recorded {without:>8.0}   {:.2}   {allocations} allocations",
        without / captured
    );
}
