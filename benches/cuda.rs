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
mod support;

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::time::{Duration, Instant};

use cudarc::driver::sys;
use dacapo::cuda::Cuda;
use dacapo::prelude::*;
use support::counting::{Allocations, uncounted};

type Inc = Kernel<(InOut<f32>, Len<0>), Cuda>;

/// One kernel of a few instructions for both sides.
const PTX: &str = ".version 7.0
.target sm_70
.address_size 64
.visible .entry inc(.param .u64 x, .param .u64 n)
{
  .reg .pred %p; .reg .b32 %r<4>; .reg .f32 %f<3>; .reg .b64 %d<6>;
  ld.param.u64 %d1, [n];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mad.lo.u32 %r1, %r1, %r2, %r3; cvt.u64.u32 %d2, %r1;
  setp.ge.u64 %p, %d2, %d1; @%p ret;
  ld.param.u64 %d3, [x]; cvta.to.global.u64 %d3, %d3; shl.b64 %d4, %d2, 2; add.u64 %d3, %d3, %d4;
  ld.global.f32 %f1, [%d3]; add.f32 %f2, %f1, 0f3F800000; st.global.f32 [%d3], %f2; ret;
}
\0";

/// The driver's side: its stream and kernel, which live as long as the process, and the memory of ours.
struct Raw {
    stream: sys::CUstream,
    function: sys::CUfunction,
    chains: Vec<sys::CUdeviceptr>,
    n: u64,
}

fn ok(code: sys::CUresult) {
    assert_eq!(code, sys::CUresult::CUDA_SUCCESS);
}

impl Raw {
    /// On the device's primary context, which `Device` has made, and on the very memory of `ours`: how far it is from where
    /// the kernel runs makes a difference of a sixth.
    fn new(ours: &Ours) -> Self {
        let chains = ours.chains.iter().map(|chain| chain.raw().unwrap().address()).collect();
        let (mut context, mut stream) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a place for a handle, and the first device, which is there: a `Device` is open.
        ok(unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, 0) });
        // SAFETY: a live context.
        ok(unsafe { sys::cuCtxSetCurrent(context) });
        // SAFETY: a place for a handle; 1 is the flag of a stream that does not wait for the default one.
        ok(unsafe { sys::cuStreamCreate(&mut stream, 1) });
        // SAFETY: a place for a handle, and text with a zero byte at its end.
        ok(unsafe { sys::cuModuleLoadData(&mut module, PTX.as_ptr().cast()) });
        // SAFETY: a place for a handle, a loaded module, and text with a zero byte at its end.
        ok(unsafe { sys::cuModuleGetFunction(&mut function, module, c"inc".as_ptr()) });
        Raw { stream, function, chains, n: ours.len as u64 }
    }

    /// Adds one to the numbers of a chain.
    fn launch(&self, chain: u64) {
        let (mut x, mut n) = (self.chains[chain as usize], self.n);
        let mut params = [std::ptr::from_mut(&mut x).cast::<c_void>(), std::ptr::from_mut(&mut n).cast()];
        let (blocks, none) = (self.n.div_ceil(256) as u32, std::ptr::null_mut());
        // SAFETY: the kernel's two parameters, of which it writes `n` floats at `x`, in memory that outlives this.
        ok(unsafe {
            sys::cuLaunchKernel(
                self.function,
                blocks,
                1,
                1,
                256,
                1,
                1,
                0,
                self.stream,
                params.as_mut_ptr(),
                none,
            )
        });
    }

    fn sync(&self) {
        // SAFETY: a live stream.
        ok(unsafe { sys::cuStreamSynchronize(self.stream) });
    }

    /// The stream capture of `nodes` launches, over so many chains in turn.
    fn capture(&self, nodes: u64, chains: u64) -> sys::CUgraph {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: a live stream, which captures nothing.
        ok(unsafe { sys::cuStreamBeginCapture_v2(self.stream, mode) });
        (0..nodes).for_each(|node| self.launch(node % chains));
        let mut graph = std::ptr::null_mut();
        // SAFETY: a place for a handle, and the stream that captures.
        ok(unsafe { sys::cuStreamEndCapture(self.stream, &mut graph) });
        graph
    }

    /// A chain of so many kernel nodes, made one by one.
    fn chain(&self, nodes: u64) -> sys::CUgraph {
        let (mut graph, mut last, mut before) = (std::ptr::null_mut(), [std::ptr::null_mut()], 0);
        // SAFETY: a place for a handle; no other flags than 0 exist.
        ok(unsafe { sys::cuGraphCreate(&mut graph, 0) });
        let (mut x, mut n) = (self.chains[0], self.n);
        let mut params = [std::ptr::from_mut(&mut x).cast::<c_void>(), std::ptr::from_mut(&mut n).cast()];
        let node = sys::CUDA_KERNEL_NODE_PARAMS {
            func: self.function,
            gridDimX: self.n.div_ceil(256) as u32,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 256,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            kernelParams: params.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        };
        for _ in 0..nodes {
            let mut added = std::ptr::null_mut();
            // SAFETY: a place for a handle, nodes of this graph, and the kernel's two parameters.
            ok(unsafe { sys::cuGraphAddKernelNode_v2(&mut added, graph, last.as_ptr(), before, &node) });
            (last, before) = ([added], 1);
        }
        graph
    }

    /// Makes the graph executable, and destroys it.
    fn instantiate(&self, graph: sys::CUgraph) -> sys::CUgraphExec {
        let mut exec = std::ptr::null_mut();
        // SAFETY: a place for a handle, and a live graph.
        ok(unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0) });
        // SAFETY: a live graph, used here for the last time.
        ok(unsafe { sys::cuGraphDestroy(graph) });
        exec
    }

    fn replay(&self, exec: sys::CUgraphExec) {
        // SAFETY: a live executable and a live stream.
        ok(unsafe { sys::cuGraphLaunch(exec, self.stream) });
    }

    /// Until all work of the process is done, as eagerly as the driver waits.
    fn sync_all() {
        // SAFETY: a context is current, and nothing captures.
        ok(unsafe { sys::cuCtxSynchronize() });
    }
}

/// Our side.
struct Ours {
    stream: Stream<NoCapture, Cuda>,
    inc: Inc,
    chains: Vec<Buffer<f32, Cuda>>,
    len: usize,
}

impl Ours {
    fn new(device: &Device<Cuda>, len: usize) -> Self {
        let mut stream = device.stream().unwrap();
        let program = Program::<(InOut<f32>, Len<0>)>::new("inc");
        // SAFETY: it compares its index with `n`, and touches `x` only.
        let inc = unsafe { program.ptx(PTX.trim_end_matches('\0'), "inc") }.load(device).unwrap();
        let chains = (0..8).map(|_| stream.alloc(len).unwrap()).collect();
        Ours { stream, inc, chains, len }
    }

    fn launch(&mut self, chain: usize) {
        let (grid, x) = (Grid::covering(self.len), &mut self.chains[chain]);
        self.stream.launch(&self.inc, grid, (x, Len)).unwrap();
    }

    fn record(&mut self, nodes: usize, chains: usize) -> Graph<Cuda> {
        let Ours { stream, inc, chains: buffers, len } = self;
        let record = stream.record(|work| {
            (0..nodes).try_for_each(|node| {
                work.launch(inc, Grid::covering(*len), (&mut buffers[node % chains], Len))
            })
        });
        record.unwrap().0
    }

    /// Whether the first number of each chain counts `sum` additions over all of them in turn.
    fn counted(&mut self, sum: u64, chains: u64) {
        for (n, chain) in self.chains.iter().take(chains as usize).enumerate() {
            let number = self.stream.read(chain.slice(..1).unwrap()).unwrap()[0];
            assert_eq!(u64::from(number as u32), sum / chains, "chain {n}");
        }
    }
}

/// One side of a comparison: something that is enqueued, and the wait for its end.
struct Side<'s> {
    enqueue: Box<dyn FnMut() + 's>,
    wait: Box<dyn FnMut() + 's>,
    least: Least,
}

/// The least of any round, in nanoseconds a unit: until it was enqueued, and until it was done.
#[derive(Clone, Copy)]
struct Least {
    name: &'static str,
    enqueued: f64,
    done: f64,
    allocations: u64,
}

impl<'s> Side<'s> {
    fn new(name: &'static str, enqueue: impl FnMut() + 's, wait: impl FnMut() + 's) -> Self {
        let least = Least { name, enqueued: f64::INFINITY, done: f64::INFINITY, allocations: u64::MAX };
        Side { enqueue: Box::new(enqueue), wait: Box::new(wait), least }
    }

    fn round(&mut self, times: u32, units: u64) -> Duration {
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
        done
    }
}

impl Least {
    fn and(self, other: Least) -> Least {
        Least {
            name: self.name,
            enqueued: self.enqueued.min(other.enqueued),
            done: self.done.min(other.done),
            allocations: self.allocations.min(other.allocations),
        }
    }
}

/// Compares two sides in so many interleaved rounds of a few milliseconds.
fn measure(rounds: u32, units: u64, mut sides: [Side<'_>; 2]) -> [Least; 2] {
    let once = sides.iter_mut().map(|side| side.round(1, units).min(side.round(1, units))).max();
    let times = Duration::from_millis(4).as_nanos() / once.unwrap_or_default().as_nanos().max(1);
    let times = (times as u32).clamp(1, if support::is_smoke() { 1 } else { 1000 });
    (0..rounds).for_each(|_| sides.iter_mut().for_each(|side| _ = side.round(times, units)));
    sides.map(|side| side.least)
}

fn report(title: &str, unit: &str, [raw, ours]: [Least; 2]) {
    println!("\n{title}: nanoseconds a {unit}, least of all interleaved rounds");
    for Least { name, enqueued, done, allocations } in [raw, ours] {
        let (by, to) = (enqueued / raw.enqueued, done / raw.done);
        println!(
            "{name:<36} enqueued {enqueued:>10.0} ({by:.2})   done {done:>10.0} ({to:.2})   {allocations} allocations"
        );
    }
}

fn compare(title: &str, unit: &str, units: u64, sides: [Side<'_>; 2]) -> [Least; 2] {
    let least = measure(rounds(40), units, sides);
    report(title, unit, least);
    least
}

fn rounds(usual: u32) -> u32 {
    if support::is_smoke() { 1 } else { usual }
}

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
    compare("eager launches, 64 floats", "launch", BURST, [raw_side, our_side]);
    ours.into_inner().counted(sum.get(), 1);
}

/// Replays of `nodes` nodes over `chains` chains of `len` floats.
///
/// Where the driver puts an executable may count as well, so that each side has several.
fn replays(device: &Device<Cuda>, nodes: u64, chains: u64, len: u64) {
    let mut ours = Ours::new(device, len as usize);
    let (raw, sum) = (Raw::new(&ours), Cell::new(0));
    let mut least: [Option<[Least; 2]>; 2] = [None; 2];
    for _ in 0..rounds(4) {
        let exec = raw.instantiate(raw.capture(nodes, chains));
        let mut graph = ours.record(nodes as usize, chains as usize);
        let ours = RefCell::new(&mut ours);
        let mut replay = || drop(graph.replay(&mut ours.borrow_mut().stream).unwrap());
        for (burst, least) in BURSTS.into_iter().zip(&mut least) {
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
            let [raw_now, ours_now] = measure(rounds(10), burst, [raw_side, our_side]);
            let [raw, ours] = least.unwrap_or([raw_now, ours_now]);
            *least = Some([raw.and(raw_now), ours.and(ours_now)]);
        }
        // SAFETY: a live executable, used here for the last time; none of its launches is in flight.
        ok(unsafe { sys::cuGraphExecDestroy(exec) });
    }
    for (least, what) in least.into_iter().zip(["waited for one by one", "in bursts"]) {
        let title = format!("replays of {nodes} nodes, {chains} chains, {len} floats, {what}");
        least.into_iter().for_each(|least| report(&title, "replay", least));
    }
    ours.counted(sum.get(), chains);
}

/// How many replays come before each wait.
const BURSTS: [u64; 2] = [1, 16];

/// The times of one thing, in nanoseconds, ascending.
struct Times(Vec<f64>);

impl Times {
    fn of(times: impl Iterator<Item = f64>) -> Self {
        let mut times: Vec<f64> = times.collect();
        times.sort_by(f64::total_cmp);
        Times(times)
    }

    fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }

    /// Between which of the times the median of all that might have been measured lies, in 95 of 100 cases.
    fn interval(&self) -> (f64, f64) {
        let count = self.0.len() as f64;
        let rank = |by: f64| (count / 2.0 + by * 0.98 * count.sqrt()).clamp(0.0, count - 1.0) as usize;
        (self.0[rank(-1.0)], self.0[rank(1.0)])
    }
}

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
fn records(device: &Device<Cuda>, nodes: u64) {
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
    let least = |of: fn(&Round) -> f64| times(of).0[0];
    let without = least(|round| round.record) - least(|round| round.chain);
    let captured = least(|round| round.capture);
    println!(
        "least of each          captured {captured:>8.0}   recorded {without:>8.0}   {:.2}   {allocations} allocations",
        without / captured
    );
}

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
