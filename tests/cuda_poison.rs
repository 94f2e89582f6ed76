//! A sticky fault of the device: the first cause is kept, everything after it fails at once, and drops stay quiet.
//!
//! In a process of its own: the driver refuses everything from then on.

mod runner;
#[path = "cuda/support.rs"]
mod support;

use std::time::{Duration, Instant};

use dacapo::cuda::Cuda;
use dacapo::prelude::*;
use dacapo::{Error, ErrorKind};
use support::{block_on, device, ramp, written};

/// Writes far outside of its memory, where no buffer is.
fn stray(device: &Device<Cuda>) -> Kernel<(InOut<f32>,), Cuda> {
    let text = "extern \"C\" __global__ void stray(float* x) { *(volatile float*)(16) = *x; }";
    // SAFETY: it keeps no promise, on purpose: the process ends with this test, and touches nothing of the device's memory
    // that is not lost anyway.
    unsafe { Program::<(InOut<f32>,)>::new("stray").cuda(text, "stray") }.load(device).unwrap()
}

fn is_lost<T>(outcome: Result<T, Error>) -> bool {
    match outcome {
        Err(error @ Error::DeviceLost { .. }) => {
            assert_eq!(error.kind(), ErrorKind::Lost);
            assert!(error.to_string().contains("ILLEGAL_ADDRESS"), "{error}");
            true
        }
        Err(other) => panic!("{other}"),
        Ok(_) => false,
    }
}

fn main() {
    if runner::is_asked_for(["a_sticky_fault_is_told_once_and_for_all"]) {
        return;
    }
    let Some((device, k)) = device() else { return };
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let (mut x, mut y) = (written(&mut a, &ramp(1000)), written(&mut b, &ramp(1000)));
    let (mut graph, ()) = b.record(|w| w.launch(&k.inc, Grid::covering(1000), (&mut y, Len))).unwrap();
    graph.replay(&mut b).unwrap().wait().unwrap();
    let stray = stray(&device);
    let pending = {
        a.launch(&stray, Grid::blocks(1), (&mut x,)).unwrap();
        a.read_async(&x)
    };
    let timed = graph.replay_timed(&mut a);
    // Nobody waits for the device: its own thread finds out.
    if let Ok(future) = pending {
        assert!(is_lost(block_on(future)), "the read of a lost device must not succeed");
    }
    let started = Instant::now();
    assert!(is_lost(timed.and_then(|ticket| ticket.wait())), "nor has a replay a time that never ran");
    assert!(is_lost(a.sync()) && is_lost(b.sync()));
    assert!(is_lost(a.read(&x)) && is_lost(b.read(&y)));
    assert!(is_lost(b.launch(&k.inc, Grid::covering(1000), (&mut y, Len))));
    assert!(is_lost(graph.replay(&mut b)));
    assert!(is_lost(b.alloc::<f32>(10)));
    assert!(is_lost(device.check()) && is_lost(device.stream()));
    assert!(is_lost(a.read_timeout(&x, Duration::from_secs(60))));
    drop((graph, x, y, k, stray, a, b));
    drop(device);
    assert!(started.elapsed() < Duration::from_secs(30), "nothing waits for a lost device");
    println!("lost, and quiet");
}
