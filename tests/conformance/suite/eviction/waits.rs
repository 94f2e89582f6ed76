//! `wait_idle`: for recordings, for as long as was asked, and however they end.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dacapo::{CaptureStatus, Recording};

use super::evict;
use super::support::*;

/// So long that a waiter who is not woken fails the test by never ending it.
const FOREVER: Duration = Duration::MAX;

fn recording(device: &Device) -> Stream<Recording> {
    device.stream().unwrap().prepare().unwrap().begin().unwrap()
}

/// A thread that waits until nothing records; returns once that thread runs.
fn waiter(status: CaptureStatus, timeout: Duration) -> JoinHandle<bool> {
    let (started, runs) = mpsc::channel();
    let waiter = thread::spawn(move || {
        started.send(()).unwrap();
        status.wait_idle(timeout)
    });
    runs.recv().unwrap();
    waiter
}

/// A way out that woke nobody would leave the waiter asleep on an idle device.
#[test]
fn every_way_out_of_a_recording_ends_the_wait() {
    let Some((device, _)) = working(1) else { return };
    let mut x = device.stream().unwrap().alloc::<f32>(N).unwrap();
    let mut doom = |mut recording: Stream<Recording>| {
        recording.write(&mut x, &[0.0]).unwrap_err();
        drop(recording.end().unwrap_err());
    };
    let evicted = |recording: Stream<Recording>| {
        evict(&device, recording.window().unwrap()).unwrap();
        // Its owner never comes back.
        subject::forget(recording);
    };
    let panicked = |recording: Stream<Recording>| {
        let owner = thread::spawn(move || {
            let _mine = recording;
            std::panic::resume_unwind(Box::new("the owner's own"));
        });
        assert!(owner.join().is_err());
    };
    let ways: [&mut dyn FnMut(Stream<Recording>); 6] = [
        &mut |recording| drop(recording.end().unwrap()),
        &mut |recording| drop(recording.abort()),
        &mut |recording| drop(recording),
        &mut doom,
        &mut { evicted },
        &mut { panicked },
    ];
    for way in ways {
        let open = recording(&device);
        let waiters = [(); 3].map(|()| waiter(device.captures(), FOREVER));
        assert!(device.captures().any_recording());
        way(open);
        assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap()));
        assert!(device.captures().wait_idle(Duration::ZERO));
    }
}

/// Who gives up must know that he did.
#[test]
fn a_wait_that_runs_out_says_so_and_leaves_the_recording_alone() {
    let Some((device, _)) = working(1) else { return };
    let open = recording(&device);
    for timeout in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(2)] {
        assert!(!waiter(device.captures(), timeout).join().unwrap());
        assert!(!device.captures().wait_idle(timeout), "the owner's own thread would wait for itself");
    }
    assert_eq!(device.captures().recording_count(), 1);
    assert!(open.end().is_ok());
}

/// Ending one of two recordings is no idle moment.
#[test]
fn a_wait_lasts_until_the_last_recording_is_over() {
    let Some((device, _)) = working(1) else { return };
    let (first, last) = (recording(&device), recording(&device));
    evict(&device, first.window().unwrap()).unwrap();
    assert!(!device.captures().wait_idle(Duration::from_millis(1)));
    let waiter = waiter(device.captures(), FOREVER);
    evict(&device, last.window().unwrap()).unwrap();
    assert!(waiter.join().unwrap());
}

/// A warm-up may last for the life of a service, and executes.
#[test]
fn nobody_waits_for_warm_ups_nor_for_other_devices() {
    let (Some((device, _)), Some((other, _))) = (working(1), working(1)) else { return };
    let prepared = device.stream().unwrap().prepare().unwrap();
    let elsewhere = recording(&other);
    assert!(device.captures().wait_idle(Duration::ZERO));
    assert!(!other.captures().wait_idle(Duration::ZERO));
    let open = prepared.begin().unwrap();
    assert!(!device.captures().wait_idle(Duration::ZERO));
    drop((open, elsewhere));
    assert!(other.captures().wait_idle(FOREVER) && device.captures().wait_idle(FOREVER));
}

/// A device whose recordings follow each other without end still has moments between them.
#[test]
fn a_wait_ends_on_a_device_that_records_again_and_again() {
    let Some((device, _)) = working(1) else { return };
    let open = recording(&device);
    let waiter = waiter(device.captures(), FOREVER);
    let mut stream = open.abort();
    let mut rounds = 0usize;
    while !waiter.is_finished() {
        stream = stream.prepare().unwrap().begin().unwrap().abort();
        rounds += 1;
        assert!(rounds < 100_000_000, "the waiter sleeps through every idle moment");
    }
    assert!(waiter.join().unwrap());
    let _again = stream.prepare().unwrap().begin().unwrap();
    assert!(!device.captures().wait_idle(Duration::ZERO), "and promises nothing for later");
}
