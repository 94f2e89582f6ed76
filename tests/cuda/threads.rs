//! Windows and work of several threads at once.

#![allow(unsafe_code, reason = "the driver's own calls, as another library makes them")]

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cudarc::driver::sys;
use cudarc::nvrtc::compile_ptx;
use dacapo::cuda::Cuda;
use dacapo::prelude::*;

use crate::neighbours::{Beside, ok};
use crate::support::{Buf, Kernels, ramp, written};

const ROUNDS: usize = 1000;

/// One of two windows that are open at the same time: recorded, sealed, replayed twice, every value looked at.
fn window(device: &Device<Cuda>, k: &Kernels, seed: usize, both: &Barrier) {
    let mut stream = device.stream().unwrap();
    for round in 0..ROUNDS {
        let len = 100 + round;
        let mut x = stream.alloc::<f32>(len).unwrap();
        let mut recording = stream.prepare().unwrap().begin().unwrap();
        both.wait();
        let mut work = || -> dacapo::Result<Buf<f32>> {
            let mut y = recording.alloc_scratch(len)?;
            (0..seed).try_for_each(|_| recording.launch(&k.inc, Grid::covering(len), (&mut x, Len)))?;
            recording.launch(&k.mul2, Grid::covering(len), (&x, Len, &mut y, Len))?;
            Ok(y)
        };
        let y = work().unwrap();
        assert!(device.captures().any_recording());
        // Neither ends before the other has recorded.
        both.wait();
        let (mut graph, ended) = recording.end().unwrap();
        stream = ended;
        assert_eq!(graph.nodes(), seed + 1);
        for replay in 1..=2 {
            graph.replay(&mut stream).unwrap();
            assert_eq!(stream.read(&y).unwrap(), vec![2.0 * (replay * seed) as f32; len], "round {round}");
        }
        assert_eq!(stream.read(&x).unwrap(), vec![2.0 * seed as f32; len], "round {round}");
    }
}

/// Allocates, launches, reads and frees; every value looked at.
fn bystander(device: &Device<Cuda>, k: &Kernels, round: usize) {
    let mut stream = device.stream().unwrap();
    let len = round * 37 % 5000;
    let mut x = written(&mut stream, &ramp(len));
    let zero = stream.alloc::<f32>(len).unwrap();
    let mut y = stream.alloc_scratch::<f32>(len).unwrap();
    stream.launch(&k.inc, Grid::covering(len), (&mut x, Len)).unwrap();
    stream.launch(&k.mul2, Grid::covering(len), (&x, Len, &mut y, Len)).unwrap();
    assert_eq!(stream.read(&zero).unwrap(), vec![0.0; len]);
    drop((x, zero));
    let expected: Vec<f32> = ramp(len).iter().map(|x| 2.0 * (x + 1.0)).collect();
    assert_eq!(stream.read(&y).unwrap(), expected, "round {round}");
    if round.is_multiple_of(100) {
        stream.memory_cleanup().unwrap();
    }
}

/// A window on a pooled driver stream takes in what others do meanwhile, or makes them wait.
#[test]
fn two_windows_at_once_and_a_third_thread_that_works_stay_apart_for_a_thousand_rounds() {
    let (device, k) = crate::device!();
    let (both, done) = (Barrier::new(2), AtomicUsize::new(0));
    let rounds = std::thread::scope(|scope| {
        for seed in 1..=2 {
            let (device, k, both, done) = (&device, &k, &both, &done);
            scope.spawn(move || {
                window(device, k, seed, both);
                done.fetch_add(1, Ordering::Release);
            });
        }
        let third = scope.spawn(|| {
            let mut round = 0;
            while round < ROUNDS || done.load(Ordering::Acquire) < 2 {
                bystander(&device, &k, round);
                round += 1;
            }
            round
        });
        third.join().unwrap()
    });
    assert!(rounds >= ROUNDS);
}

/// What another library does, each in its turn. What waits for the whole context is among it.
fn ordinary(beside: &Beside, what: usize) {
    let Beside { context, theirs, .. } = beside;
    context.bind_to_thread().unwrap();
    let (mut at, mut pinned) = (0, std::ptr::null_mut());
    match what % 8 {
        // SAFETY: a place for an address, which is freed before anything uses it.
        0 => unsafe {
            ok(sys::cuMemAlloc_v2(&mut at, 1 << 20));
            ok(sys::cuMemFree_v2(at));
        },
        // SAFETY: a place for an address, which is freed before anything uses it.
        1 => unsafe {
            ok(sys::cuMemHostAlloc(&mut pinned, 1 << 16, 0));
            ok(sys::cuMemFreeHost(pinned));
        },
        2 => drop(theirs.alloc_zeros::<f32>(1000).unwrap()),
        3 => theirs.synchronize().unwrap(),
        // SAFETY: takes nothing; a context is current.
        4 => ok(unsafe { sys::cuCtxSynchronize() }),
        5 => assert!(theirs.record_event(None).unwrap().try_is_complete().is_ok()),
        6 => {
            let source = "extern \"C\" __global__ void nothing() {}";
            let module = context.load_module(compile_ptx(source).unwrap()).unwrap();
            module.load_function("nothing").unwrap();
        }
        _ => {
            let data: Vec<f32> = ramp(300_000);
            assert_eq!(theirs.clone_dtoh(&theirs.clone_htod(&data).unwrap()).unwrap(), data);
        }
    }
}

/// In the global mode of a driver's capture each of these ends the capture of another thread, and fails itself; and a wait for
/// the whole context does so in every mode.
#[test]
fn thr_01_e21_another_thread_may_do_anything_ordinary_while_we_record() {
    let beside = crate::beside!();
    let Beside { device, k, context, .. } = &beside;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut rounds = 0;
            while rounds < 8 * 200 || !stop.load(Ordering::Acquire) {
                ordinary(&beside, rounds);
                rounds += 1;
            }
        });
        let mut stream = device.stream().unwrap();
        let mut x = stream.alloc::<f32>(1000).unwrap();
        for round in 0..200 {
            let mut recording = stream.prepare().unwrap().begin().unwrap();
            recording.launch(&k.inc, Grid::covering(1000), (&mut x, Len)).unwrap();
            recording.launch(&k.inc, Grid::covering(1000), (&mut x, Len)).unwrap();
            let (mut graph, ended) = recording.end().unwrap();
            stream = ended;
            graph.replay(&mut stream).unwrap();
            assert_eq!(stream.read(&x).unwrap(), [2.0 * (round + 1) as f32; 1000]);
        }
        stop.store(true, Ordering::Release);
        other.join().unwrap();
    });
    context.check_err().unwrap();
}

/// One open window defers every release of the process, or every other capture, on whichever device.
#[test]
fn e24_an_open_window_defers_nobodys_captures_and_releases() {
    let Beside { device, k, context, .. } = crate::beside!();
    let other = Device::<Cuda>::from_context(context).unwrap();
    let other_k = Kernels::load(&other);
    let mut x = written(&mut device.stream().unwrap(), &ramp(1000));
    let grid = Grid::covering(1000);
    let mut recording = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    recording.launch(&k.inc, grid, (&mut x, Len)).unwrap();
    for (device, k) in [(&device, &k), (&other, &other_k)] {
        let mut stream = device.stream().unwrap();
        let mut own =
            stream.allocating(dacapo::AllocationMode::Dedicated, |work| work.alloc::<f32>(1 << 20)).unwrap();
        let (mut graph, ()) =
            stream.record(|work| work.launch(&k.inc, Grid::covering(1 << 20), (&mut own, Len))).unwrap();
        graph.replay(&mut stream).unwrap();
        assert_eq!(stream.read(&own).unwrap()[1 << 19], 1.0);
        let held = device.memory_usage().held;
        drop((graph, own));
        assert!(crate::support::eventually(|| device.memory_usage().held <= held - (4 << 20)));
    }
    let (mut graph, mut stream) = recording.end().unwrap();
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&x).unwrap(), ramp(1000).iter().map(|x| x + 1.0).collect::<Vec<_>>());
}
