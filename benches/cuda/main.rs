//! Ours against the driver's own calls, on one CUDA device, in one process.
//!
//! **Measured.** Chains of a kernel that adds one to each of 64 floats, with blocks of 256 threads: enqueueing launches;
//! enqueueing replays of K nodes, in bursts; a replay from its enqueueing to the end of the wait for it; recording and
//! ending K nodes, with instantiation and without, against the driver's stream capture of the same; eight independent
//! chains, written one after the other, against the stream capture of the same calls; and a control, where the kernels are
//! so long that nothing else counts. The numbers are compared with how often they were to be added to.
//!
//! **How it can mislead.** Both sides wait differently: ours looks at a number in host memory, the driver's side calls
//! `cuStreamSynchronize`, which by default looks just as eagerly, and tidies up for the next call, which ours then does at
//! the next call; and whose thread gives the processor away while it waits is slower right after. So enqueueing is measured
//! in bursts, before which both sides have waited alike; but a call into a full queue waits for the device, so that the
//! bursts are of a size that fits. Both sides work on the same memory: a short kernel is up to a sixth slower on memory that
//! is further away from it. What recording costs without instantiation is a
//! difference, of recording and of instantiating a graph of the same nodes and edges in the same round, of which the median
//! of many rounds is printed with its interval: where instantiation is most of it, the interval says what is known. Where
//! there is no device, nothing is measured and that is printed.

#![allow(unsafe_code, reason = "the driver's own calls")]

#[allow(dead_code, reason = "criterion's part is for benches that cost nothing")]
#[path = "../support/mod.rs"]
mod support;

mod driver;
mod measure;
mod records;

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use cudarc::driver::sys;
use dacapo::cuda::Cuda;
use dacapo::prelude::*;

use driver::{Ours, Raw, ok};
use measure::{Compared, Side, measure, report, rounds};
use records::records;

fn eager(device: &Device<Cuda>) {
    const BURST: u64 = 500;
    let (sum, ours) = (Cell::new(0), RefCell::new(Ours::new(device, 64)));
    let raw = Raw::new(&ours.borrow());
    let count = || sum.set(sum.get() + BURST);
    let launch = || (0..BURST).for_each(|_| raw.launch(0));
    let raw_side = Side::new("cuLaunchKernel", launch, || {
        raw.sync();
        count();
    });
    let launch = || (0..BURST).for_each(|_| ours.borrow_mut().launch(0));
    let our_side = Side::new("launch", launch, || {
        ours.borrow_mut().stream.sync().unwrap();
        count();
    });
    let compared = measure(rounds(60), BURST, [raw_side, our_side]);
    report("eager launches, 64 floats", "launch", compared);
    ours.into_inner().counted(sum.get(), 1);
}

/// Replays of `nodes` nodes over `chains` chains of `len` floats.
///
/// Where the driver puts an executable may count as well, so that each side has several.
fn replays(device: &Device<Cuda>, nodes: u64, chains: u64, len: u64) {
    let mut ours = Ours::new(device, len as usize);
    let (raw, sum) = (Raw::new(&ours), Cell::new(0));
    let mut compared: [Option<Compared>; 2] = [None, None];
    for _ in 0..rounds(4) {
        let exec = raw.instantiate(raw.capture(nodes, chains));
        let mut graph = ours.record(nodes as usize, chains as usize);
        let ours = RefCell::new(&mut ours);
        let mut replay = || drop(graph.replay(&mut ours.borrow_mut().stream).unwrap());
        for (burst, compared) in BURSTS.into_iter().zip(&mut compared) {
            // In bursts it is the enqueueing that is looked at, so that both sides wait alike.
            let wait = || {
                sum.set(sum.get() + burst * nodes);
                if burst > 1 {
                    Raw::sync_all();
                }
            };
            let launch = || (0..burst).for_each(|_| raw.replay(exec));
            let raw_side = Side::new("cuGraphLaunch", launch, || {
                wait();
                raw.sync();
            });
            let launch = || (0..burst).for_each(|_| replay());
            let our_side = Side::new("replay", launch, || {
                wait();
                ours.borrow_mut().stream.sync().unwrap();
            });
            let now =
                measure(rounds(if nodes * burst > 20_000 { 10 } else { 40 }), burst, [raw_side, our_side]);
            *compared = Some(match compared.take() {
                Some(before) => before.and(now),
                None => now,
            });
        }
        // SAFETY: a live executable, used here for the last time; none of its launches is in flight.
        ok(unsafe { sys::cuGraphExecDestroy(exec) });
    }
    for (compared, what) in compared.into_iter().zip(["waited for one by one", "in bursts"]) {
        let title = format!("replays of {nodes} nodes, {chains} chains, {len} floats, {what}");
        compared.into_iter().for_each(|compared| report(&title, "replay", compared));
    }
    ours.counted(sum.get(), chains);
}

/// How many replays come before each wait.
const BURSTS: [u64; 2] = [1, 16];

fn main() {
    let device = match Device::<Cuda>::new(0) {
        Ok(device) => device,
        Err(error) => return println!("not measured: {error}"),
    };
    // Clocks rise with work.
    let mut warm = Ours::new(&device, 1 << 20);
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(if support::is_smoke() { 1 } else { 500 }) {
        (0..100).for_each(|_| warm.launch(0));
        warm.stream.sync().unwrap();
    }
    if is_wanted("eager") {
        eager(&device);
    }
    if is_wanted("replays") {
        for nodes in [1, 150, 1000, 5000] {
            replays(&device, nodes, 1, 64);
        }
        replays(&device, 1000, 8, 64);
        replays(&device, 150, 1, 1 << 20);
    }
    if is_wanted("records") {
        for nodes in [1, 150, 1000, 5000] {
            records(&device, nodes);
        }
    }
}

/// Whether a part is to be measured: all are, unless some are named, as in `cargo bench --bench cuda -- records`.
fn is_wanted(part: &str) -> bool {
    let mut named = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).peekable();
    named.peek().is_none() || named.any(|name| name == part)
}
