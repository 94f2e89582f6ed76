//! Who owns what a read lands in.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dacapo::prelude::*;
use dacapo::{Call, Error, ReadFuture, Result};

use crate::support_objects::*;

pub fn poll(future: &mut ReadFuture<u32>) -> Option<Result<Vec<u32>>> {
    match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

/// The device writes what a reader left behind: it must not be the reader's memory, nor the next one's.
#[test]
fn a_read_that_timed_out_keeps_its_landing_until_the_device_is_done() {
    let (device, stepper) = stepped(1);
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    s.fill(&mut x, 7).unwrap();
    stepper.run_all();
    let hold = stepper.hold();
    let mut into = [1; N];
    let late = refused(s.read_into_timeout(&x, &mut into, Duration::from_millis(1)));
    assert!(matches!(late, Error::Timeout { operation: "read", .. }), "{late}");
    assert_eq!(into, [1; N]);
    assert!(matches!(refused(s.read_timeout(&x, Duration::ZERO)), Error::Timeout { .. }));
    let kept = device.memory_usage().pending_host;
    assert!(kept >= 2 * N * 4);
    // The same size class, while both landings are still the device's.
    s.write(&mut x, &[8; N]).unwrap();
    let mut after = s.read_async(&x).unwrap();
    drop(hold);
    stepper.run_all();
    assert_eq!(into, [1; N]);
    assert_eq!(poll(&mut after).unwrap().unwrap(), [8; N]);
    s.sync().unwrap();
    assert_eq!(device.memory_usage().pending_host, 0);
    s.read_into_timeout(&x, &mut into, Duration::from_secs(60)).unwrap();
    assert_eq!(into, [8; N]);
}

/// A landing given up at a bad moment must come back whole, once, and after the device.
#[test]
fn futures_dropped_at_any_moment_leave_later_reads_right() {
    let (device, stepper) = stepped(1);
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    stepper.run_all();
    let mut kept = Vec::new();
    for n in 0..30 {
        s.fill(&mut x, n).unwrap();
        let mut future = s.read_async(&x).unwrap();
        match n % 6 {
            0 => drop(future),
            1 => {
                assert!(poll(&mut future).is_none());
                drop(future);
            }
            2 => {
                stepper.step(s.id());
                drop(future);
            }
            3 => {
                stepper.run_all();
                drop(future);
            }
            4 => {
                stepper.run_all();
                assert_eq!(poll(&mut future).unwrap().unwrap(), [n; N]);
                assert!(poll(&mut future).is_none(), "it hands its elements out once");
            }
            _ => kept.push((n, future)),
        }
    }
    stepper.run_all();
    s.sync().unwrap();
    assert_eq!(device.memory_usage().pending_host, 0);
    let pins = device.faults().count(Call::Pin);
    for n in 0..100 {
        s.fill(&mut x, 1000 + n).unwrap();
        assert_eq!(s.read(&x).unwrap(), [1000 + n; N]);
    }
    assert_eq!(device.faults().count(Call::Pin), pins, "every landing came back");
    for (n, mut future) in kept {
        assert_eq!(poll(&mut future).unwrap().unwrap(), [n; N], "what was not taken yet is nobody else's");
    }
}

/// A future may be the last thing that is left of its device.
#[test]
fn a_future_that_outlives_its_device_still_has_its_elements() {
    let device = device(1);
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    s.fill(&mut x, 3).unwrap();
    let mut future = s.read_async(&x).unwrap();
    s.sync().unwrap();
    drop((x, s, device));
    assert_eq!(poll(&mut future).unwrap().unwrap(), [3; N]);
}

/// Lengths that do not agree are told before anything is asked of the device.
#[test]
fn a_read_into_the_wrong_length_calls_no_driver_and_changes_nothing() {
    let device = device(1);
    let mut s = device.stream().unwrap();
    let x = s.alloc::<u32>(N).unwrap();
    s.sync().unwrap();
    let calls = device.faults().total();
    let mut into = [9; N - 1];
    let error = refused(s.read_into(&x, &mut into));
    assert!(matches!(error, Error::LengthMismatch { source_len: N, target_len, .. } if target_len == N - 1));
    assert_eq!((device.faults().total(), into), (calls, [9; N - 1]));
}
