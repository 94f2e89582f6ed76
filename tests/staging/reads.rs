//! Who owns what a read lands in.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use dacapo::prelude::*;
use dacapo::{Call, ReadFuture, Result};

use crate::support_objects::*;

pub fn poll(future: &mut ReadFuture<u32>) -> Option<Result<Vec<u32>>> {
    match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
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
