//! The end of a program that shares its context and its memory with a device: in any order, with work in flight, and on a
//! device that is lost.
//!
//! Each scenario is a process of its own, which must end well, and soon.

#![allow(unsafe_code, reason = "a kernel that keeps no promise, on purpose")]

mod runner;
#[path = "cuda/support.rs"]
mod support;

use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use dacapo::cuda::Cuda;
use dacapo::prelude::*;
use dacapo::{DeviceOptions, Error};
use support::{Buf, Kernels, device_with, eventually, ramp};

/// What a scenario is named by in the environment of its process.
const NAME: &str = "DACAPO_SCENARIO";

const SCENARIOS: [(&str, fn()); 4] = [
    ("the program's handle goes first", handle_goes_first),
    ("the program keeps its handle", handle_is_kept),
    ("memory is on its way back", on_its_way_back),
    ("the device is lost", lost),
];

fn main() {
    if let Ok(name) = std::env::var(NAME) {
        let (_, scenario) = SCENARIOS.iter().find(|(known, _)| *known == name).expect("a scenario");
        return scenario();
    }
    if runner::is_asked_for(["a_program_that_shares_its_context_ends_well"])
        || device_with(DeviceOptions::<Cuda>::new()).is_none()
    {
        return;
    }
    for (name, _) in SCENARIOS {
        let me = std::env::current_exe().unwrap();
        let child = Command::new(me).env(NAME, name).spawn().unwrap();
        let status = wait(child, name);
        assert!(status.success(), "{name}: {status}");
        println!("{name}: ended well");
    }
}

/// How the process ended, if it did in time.
fn wait(mut child: Child, name: &str) -> ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if started.elapsed() > Duration::from_secs(20) {
            child.kill().unwrap();
            panic!("{name}: hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A program with memory on the device, which is recorded on and in use.
struct Program {
    device: Device<Cuda>,
    stream: Stream<NoCapture, Cuda>,
    graph: Graph<Cuda>,
    weights: Buf<f32>,
    k: Kernels,
}

fn start(context: &Arc<CudaContext>) -> (Program, Arc<CudaStream>) {
    let theirs = context.new_stream().unwrap();
    let device = Device::<Cuda>::from_context(context.clone()).unwrap();
    let k = Kernels::load(&device);
    let mut stream = device.stream().unwrap();
    let slice = theirs.clone_htod(&ramp(1 << 20)).unwrap();
    let mut weights = Buffer::from_cudarc(&mut stream, slice).unwrap();
    let grid = Grid::covering(1 << 20);
    let (mut graph, ()) = stream
        .record(|work| (0..200).try_for_each(|_| work.launch(&k.inc, grid, (&mut weights, Len))))
        .unwrap();
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(weights.slice(..2).unwrap()).unwrap(), [201.0, 202.0]);
    (Program { device, stream, graph, weights, k }, theirs)
}

/// Nothing of it is dropped at the end of the process, and a replay is in flight.
fn handle_goes_first() {
    static KEPT: Mutex<Option<Program>> = Mutex::new(None);
    let context = CudaContext::new(0).unwrap();
    let (mut program, theirs) = start(&context);
    drop((context, theirs));
    program.graph.replay(&mut program.stream).unwrap();
    *KEPT.lock().unwrap() = Some(program);
}

/// Everything of ours is dropped in flight, right before the end.
fn handle_is_kept() {
    static KEPT: Mutex<Option<(Arc<CudaContext>, Arc<CudaStream>)>> = Mutex::new(None);
    let context = CudaContext::new_non_primary(0, 0).unwrap();
    let (mut program, theirs) = start(&context);
    program.graph.replay(&mut program.stream).unwrap();
    *KEPT.lock().unwrap() = Some((context, theirs));
    drop(program);
}

/// Slices go back to their owner on another thread, which the end of the process finds at work.
fn on_its_way_back() {
    let context = CudaContext::new(0).unwrap();
    let (mut program, theirs) = start(&context);
    let slices: Vec<CudaSlice<f32>> = (0..200).map(|_| theirs.alloc_zeros(1000).unwrap()).collect();
    let all = slices.into_iter().map(|slice| Buffer::from_cudarc(&mut program.stream, slice));
    let mut all: Vec<_> = all.collect::<Result<_, _>>().unwrap();
    program.graph.replay(&mut program.stream).unwrap();
    for x in &mut all {
        program.stream.launch(&program.k.inc, Grid::covering(1000), (x, Len)).unwrap();
    }
    drop(all);
}

/// A kernel of the program's makes the device fail: what was lent comes back as it went, or stays, and nothing hangs.
fn lost() {
    let context = CudaContext::new(0).unwrap();
    let (mut program, theirs) = start(&context);
    let text = "extern \"C\" __global__ void stray(float* x) { *(volatile float*)(16) = *x; }";
    // SAFETY: it keeps no promise, on purpose: the process ends soon, and touches nothing of the device's memory any more.
    let stray = unsafe { dacapo::Program::<(InOut<f32>,)>::new("stray").cuda(text, "stray") };
    let stray = stray.load(&program.device).unwrap();
    let spare = theirs.alloc_zeros::<f32>(10).unwrap();
    let dropped = Buffer::from_cudarc(&mut program.stream, theirs.alloc_zeros::<f32>(10).unwrap()).unwrap();
    program.stream.launch(&stray, Grid::blocks(1), (&mut program.weights,)).unwrap();
    drop(dropped);
    assert!(eventually(|| program.device.check().is_err()));
    let (spare, error) = Buffer::from_cudarc(&mut program.stream, spare).unwrap_err().into_parts();
    assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
    for outcome in [program.stream.after(&theirs), program.stream.before(&theirs)] {
        assert!(matches!(outcome, Err(Error::DeviceLost { .. })), "{outcome:?}");
    }
    let Program { graph, weights, .. } = program;
    drop(graph);
    let (weights, error) = weights.into_cudarc().unwrap_err().into_parts();
    assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
    assert_eq!((weights.len(), spare.len()), (1 << 20, 10));
}
