//! Streams of one slot, driven by several threads at once.

use std::thread;

use super::support::*;
use super::{N, Spread, launch, repeated, spread, table, try_launch};

/// What one thread does in one round, with tables that the others use too.
fn round(stream: &mut Stream, k: &Spread, out: &mut Buffer<u32>, n: u32) -> u32 {
    // The same few, a stretch that moves on, and some that are as large as no cache keeps them.
    let number = if n.is_multiple_of(3) { n % 7 } else { n };
    match n % 11 {
        0 => stream.memory_cleanup().unwrap(),
        1 => drop(stream.device().memory_report()),
        2 | 3 => {
            let step = |work: &mut Work<'_>| try_launch(work, k, &table(number), &mut *out);
            let recorded = if n % 11 == 2 { stream.capture(step) } else { stream.record(step) };
            recorded.unwrap().0.replay(stream).unwrap();
            return number;
        }
        4 => {
            stream.allocating(dacapo::AllocationMode::Pooled, |work| work.alloc_scratch::<u8>(5000)).unwrap();
            stream.compact().unwrap();
        }
        _ => {}
    }
    launch(stream, k, &table(number), &mut *out);
    number
}

/// Two threads that miss at once, one that finds what another is about to let go, one that lets go of all.
#[test]
fn threads_that_share_a_cache_see_their_own_tables() {
    let Some(device) = device(2) else { return };
    let k = spread(&device);
    let mut idle = device.stream().unwrap();
    let baseline = Baseline::take(&mut idle);
    thread::scope(|scope| {
        for start in 0..4 {
            let (device, k) = (&device, &k);
            scope.spawn(move || {
                let mut stream = device.stream().unwrap();
                let mut out = stream.alloc::<u32>(N).unwrap();
                for n in start..1500 + start {
                    let number = round(&mut stream, k, &mut out, n);
                    if n.is_multiple_of(5) {
                        assert_eq!(stream.read(&out).unwrap(), repeated(&table(number)), "round {n}");
                    }
                }
                stream.sync().unwrap();
            });
        }
    });
    assert!(baseline.returns(&mut idle));
}

/// An owner that launches and records while another thread evicts it: no pin may outlive the window.
#[test]
fn evictions_at_any_moment_leave_no_pin() {
    let Some(device) = device(1) else { return };
    let k = spread(&device);
    let mut idle = device.stream().unwrap();
    let mut out = idle.alloc::<u32>(N).unwrap();
    let baseline = Baseline::take(&mut idle);
    for n in 0..200u32 {
        let mut prepared = device.stream().unwrap().prepare().unwrap();
        let window = prepared.window().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| device.evict(window));
            let large = |m: u32| vec![n * 100 + m; 1500];
            let warm = (0..5)
                .try_for_each(|m| prepared.launch(&k, Grid::covering(N), (&large(m), &mut out, Len, Len)));
            if let (Ok(()), Ok(mut recording)) = (warm, prepared.begin()) {
                let _ = (3..8).try_for_each(|m| {
                    recording.launch(&k, Grid::covering(N), (&large(m), &mut out, Len, Len))
                });
                // Whoever never comes back.
                subject::forget(recording);
            }
        });
        // Nothing to evict any more, or the eviction came before anything could be pinned.
        let _ = device.evict(window);
    }
    assert!(!device.captures().any_active());
    assert!(baseline.returns(&mut idle));
}
