//! Ours against the driver's own calls, on one CUDA device, in one process.
//!
//! **Measured.** Chains of a kernel that adds one to each of 64 floats, with blocks of 256 threads: enqueueing launches;
//! enqueueing a replay of K nodes; a replay from its enqueueing to the end of the wait for it; recording and ending K nodes
//! against the driver's stream capture and instantiation of the same; eight independent chains, written one after the
//! other, against the stream capture of the same calls; and a control, where the kernels are so long that nothing else
//! counts. The numbers are compared with how often they were to be added to.
//!
//! **How it can mislead.** Both sides wait differently: ours looks at a number in host memory, the driver's side calls
//! `cuStreamSynchronize`, which by default looks just as eagerly. A launch into a full queue waits for the device, so that
//! enqueueing is measured in bursts that fit. Where there is no device, nothing is measured and that is printed.

#![allow(unsafe_code, reason = "the driver's own calls")]

#[allow(dead_code, reason = "criterion's part is for benches that cost nothing")]
mod support;

use std::ffi::c_void;
use std::time::Duration;

use cudarc::driver::sys;
use dacapo::cuda::Cuda;
use dacapo::prelude::*;
use support::{Cost, Table, cost};

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

/// The driver's side: its stream, kernel and memory. Lives as long as the process.
#[derive(Clone, Copy)]
struct Raw {
    stream: sys::CUstream,
    function: sys::CUfunction,
    x: sys::CUdeviceptr,
    n: u64,
}

fn ok(code: sys::CUresult) {
    assert_eq!(code, sys::CUresult::CUDA_SUCCESS);
}

impl Raw {
    /// On the device's primary context, which `Device` has made.
    fn new(n: u64) -> Self {
        let (mut context, mut stream) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (mut module, mut function, mut x) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
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
        // SAFETY: a place for an address.
        ok(unsafe { sys::cuMemAlloc_v2(&mut x, 8 * n as usize * 4) });
        // SAFETY: as many bytes as were allocated.
        ok(unsafe { sys::cuMemsetD8_v2(x, 0, 8 * n as usize * 4) });
        Raw { stream, function, x, n }
    }

    /// Adds one to the numbers of a chain.
    fn launch(&self, chain: u64) {
        let (mut x, mut n) = (self.x + chain * self.n * 4, self.n);
        let mut params = [std::ptr::from_mut(&mut x).cast::<c_void>(), std::ptr::from_mut(&mut n).cast()];
        let (blocks, none) = (self.n.div_ceil(256) as u32, std::ptr::null_mut());
        // SAFETY: the kernel's two parameters, of which it writes `n` floats at `x`, in memory that is never freed.
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

    /// The first number of each chain.
    fn numbers(&self, chains: u64) -> Vec<f32> {
        let read = |chain| {
            let mut number = 0f32;
            let to = std::ptr::from_mut(&mut number).cast();
            // SAFETY: room for four bytes, and a float of the memory.
            ok(unsafe { sys::cuMemcpyDtoH_v2(to, self.x + chain * self.n * 4, 4) });
            number
        };
        (0..chains).map(read).collect()
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

    fn numbers(&mut self, chains: usize) -> Vec<f32> {
        (0..chains).map(|n| self.stream.read(self.chains[n].slice(..1).unwrap()).unwrap()[0]).collect()
    }
}

/// Runs `run` so often; what comes after it, which `wait` is for, does not count.
fn bursts(times: u64, mut run: impl FnMut(), mut wait: impl FnMut()) -> Cost {
    let mut sum = Cost::default();
    for _ in 0..times {
        sum += cost(&mut run).1;
        wait();
    }
    sum
}

fn eager(device: &Device<Cuda>) {
    const BURST: u64 = 500;
    let (raw, mut ours) = (Raw::new(64), Ours::new(device, 64));
    let (mut raw_total, mut our_total) = (0.0, 0.0);
    let mut table = Table::new("eager launches, enqueueing only", "launch");
    table.row("cuLaunchKernel", BURST, |times| {
        raw_total += (times * BURST) as f32;
        bursts(times, || (0..BURST).for_each(|_| raw.launch(0)), || raw.sync())
    });
    let shared = std::cell::RefCell::new(&mut ours);
    table.row("launch", BURST, |times| {
        our_total += (times * BURST) as f32;
        let run = || (0..BURST).for_each(|_| shared.borrow_mut().launch(0));
        bursts(times, run, || shared.borrow_mut().stream.sync().unwrap())
    });
    table.compare();
    // Counts above 2^24 have no next float.
    assert!(
        our_total.min(raw_total) > 1e7
            || (raw.numbers(1), ours.numbers(1)) == (vec![raw_total], vec![our_total])
    );
}

/// Replays of `nodes` nodes over `chains` chains of `len` floats.
fn replays(device: &Device<Cuda>, nodes: u64, chains: u64, len: u64) {
    let (raw, mut ours) = (Raw::new(len), Ours::new(device, len as usize));
    let exec = raw.instantiate(raw.capture(nodes, chains));
    let mut graph = ours.record(nodes as usize, chains as usize);
    let (mut raw_total, mut our_total) = (0, 0);
    {
        let mut table = Table::new(
            format!("replay of {nodes} nodes, {chains} chains, {len} floats: enqueueing"),
            "replay",
        );
        table.row("cuGraphLaunch", 1, |times| {
            raw_total += times;
            bursts(times, || raw.replay(exec), || raw.sync())
        });
        let stream = std::cell::RefCell::new(&mut ours.stream);
        table.row("replay", 1, |times| {
            our_total += times;
            let run = || drop(graph.replay(&mut **stream.borrow_mut()).unwrap());
            bursts(times, run, || stream.borrow_mut().sync().unwrap())
        });
        table.compare();
    }
    {
        let mut table = Table::new(
            format!("replay of {nodes} nodes, {chains} chains, {len} floats: to the end"),
            "replay",
        );
        table.row("cuGraphLaunch, cuStreamSynchronize", 1, |times| {
            raw_total += times;
            bursts(times, || (raw.replay(exec), raw.sync()).1, || ())
        });
        table.row("replay, sync", 1, |times| {
            our_total += times;
            let run = || {
                graph.replay(&mut ours.stream).unwrap();
                ours.stream.sync().unwrap();
            };
            bursts(times, run, || ())
        });
        table.compare();
    }
    let each = (nodes / chains) as f32;
    let expected = |total: u64| vec![total as f32 * each; chains as usize];
    if raw_total.max(our_total) as f32 * each < 1e7 {
        assert_eq!(raw.numbers(chains), expected(raw_total));
        assert_eq!(ours.numbers(chains as usize), expected(our_total));
    }
}

fn records(device: &Device<Cuda>, nodes: u64) {
    let (raw, mut ours) = (Raw::new(64), Ours::new(device, 64));
    let mut table = Table::new(format!("recording and ending {nodes} nodes, instantiation included"), "node");
    table.row("stream capture, cuGraphInstantiate", nodes, |times| {
        let exec = std::cell::Cell::new(std::ptr::null_mut());
        // SAFETY: a live executable, used here for the last time; none of its launches is in flight.
        let destroy = || ok(unsafe { sys::cuGraphExecDestroy(exec.get()) });
        bursts(times, || exec.set(raw.instantiate(raw.capture(nodes, 1))), destroy)
    });
    table.row("record", nodes, |times| {
        let graph = std::cell::Cell::new(None);
        bursts(times, || graph.set(Some(ours.record(nodes as usize, 1))), || drop(graph.take()))
    });
    table.compare();
}

fn main() {
    let device = match Device::<Cuda>::new(0) {
        Ok(device) => device,
        Err(error) => return println!("not measured: {error}"),
    };
    // Clocks rise with work.
    let mut warm = Ours::new(&device, 1 << 20);
    let started = std::time::Instant::now();
    while started.elapsed() < Duration::from_millis(if support::is_smoke() { 1 } else { 500 }) {
        (0..100).for_each(|_| warm.launch(0));
        warm.stream.sync().unwrap();
    }
    eager(&device);
    for nodes in [1, 150, 1000, 5000] {
        replays(&device, nodes, 1, 64);
    }
    replays(&device, 1000, 8, 64);
    replays(&device, 150, 1, 1 << 20);
    for nodes in [1, 150, 1000, 5000] {
        records(&device, nodes);
    }
}
