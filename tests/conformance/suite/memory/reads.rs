//! Who owns what a read lands in.

use std::time::Duration;

use super::support::*;
use dacapo::Error;

/// The device writes what a reader left behind: it must not be the reader's memory, nor the next one's.
#[test]
fn a_read_that_timed_out_keeps_its_landing_until_the_device_is_done() {
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    s.fill(&mut x, 7).unwrap();
    s.sync().unwrap();
    let gate = Gate::close(&mut s);
    let mut into = [1; N];
    let late = refused(s.read_into_timeout(&x, &mut into, SHORT));
    assert!(matches!(late, Error::Timeout { operation: "read", .. }), "{late}");
    assert_eq!(into, [1; N]);
    assert!(matches!(refused(s.read_timeout(&x, Duration::ZERO)), Error::Timeout { .. }));
    let kept = device.memory_usage().pending_host;
    assert!(kept >= 2 * N * 4);
    // The same size class, while both landings are still the device's.
    s.write(&mut x, &[8; N]).unwrap();
    let after = s.read_async(&x).unwrap();
    gate.open();
    assert_eq!(block_on(after).unwrap(), [8; N]);
    assert_eq!(into, [1; N]);
    s.sync().unwrap();
    assert_eq!(device.memory_usage().pending_host, 0);
    s.read_into_timeout(&x, &mut into, Duration::from_secs(60)).unwrap();
    assert_eq!(into, [8; N]);
}

/// A landing given up at a bad moment must come back whole, once, and after the device.
#[test]
fn futures_dropped_while_their_reads_are_in_flight_leave_later_reads_right() {
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    s.sync().unwrap();
    let mut kept = Vec::new();
    let gate = Gate::close(&mut s);
    for n in 0..30 {
        s.fill(&mut x, n).unwrap();
        let mut future = s.read_async(&x).unwrap();
        match n % 3 {
            0 => drop(future),
            1 => {
                assert!(poll(&mut future).is_none());
                drop(future);
            }
            _ => kept.push((n, future)),
        }
    }
    gate.open();
    s.sync().unwrap();
    assert_eq!(device.memory_usage().pending_host, 0);
    let held = device.memory_report().staging.held;
    for n in 0..100 {
        s.fill(&mut x, 1000 + n).unwrap();
        assert_eq!(s.read(&x).unwrap(), [1000 + n; N]);
    }
    assert_eq!(device.memory_report().staging.held, held, "every landing came back");
    for (n, mut future) in kept {
        assert_eq!(poll(&mut future).unwrap().unwrap(), [n; N], "what was not taken yet is nobody else's");
        assert!(poll(&mut future).is_none(), "it hands its elements out once");
    }
}

/// A future may be the last thing that is left of its device.
#[test]
fn a_future_that_outlives_its_device_still_has_its_elements() {
    let Some(device) = device(1) else { return };
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
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
    let x = s.alloc::<u32>(N).unwrap();
    s.sync().unwrap();
    let calls = subject::driver_calls(&device);
    let mut into = [9; N - 1];
    let error = refused(s.read_into(&x, &mut into));
    assert!(matches!(error, Error::LengthMismatch { source_len: N, target_len, .. } if target_len == N - 1));
    assert_eq!((subject::driver_calls(&device), into), (calls, [9; N - 1]));
}
