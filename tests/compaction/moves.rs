//! What the driver does not let move.

use dacapo::host::Severity;
use dacapo::prelude::*;
use dacapo::{Call, Error};

use crate::support::{LEN, grid, stepped, working};
use crate::{sparse, verify};

/// Half a move is no move: who is not moved must be found where it was.
#[test]
fn what_the_driver_refuses_to_move_stays_where_it_is() {
    for (call, severity) in
        [(Call::Copy, Severity::Call), (Call::Copy, Severity::Memory), (Call::Wait, Severity::Call)]
    {
        let (device, stepper, k) = stepped(2);
        let [mut a, mut b] = [0; 2].map(|_| device.stream().unwrap());
        let mut buffers = sparse(&mut a, 3, 2);
        stepper.run_all();
        for (value, buffer) in &mut buffers {
            *value += 1.0;
            b.launch(&k.inc, grid(), (&mut *buffer,)).unwrap();
        }
        device.faults().fail_all(call, severity);
        let held = device.memory_usage().held;
        let error = a.compact().unwrap_err();
        assert!(matches!(&error, Error::Driver { call: refused, .. } if *refused == call), "{error}");
        assert_eq!(device.memory_usage().held, held, "{call:?}");
        device.faults().clear();
        stepper.run_all();
        verify(&mut a, &buffers);
        assert_eq!(a.compact().unwrap().pages, 2, "once the driver lets it");
        verify(&mut b, &buffers);
    }
    // In the midst of it: some have moved, some have not.
    let (device, _) = working(1);
    let mut stream = device.stream().unwrap();
    let buffers = sparse(&mut stream, 4, 3);
    device.faults().fail_nth(Call::Copy, 5, Severity::Call);
    let error = stream.compact().unwrap_err();
    assert!(matches!(error, Error::Driver { call: Call::Copy, .. }), "{error}");
    assert_eq!(
        device.faults().count(Call::Copy),
        5,
        "four have moved, and the fifth was the last to be tried"
    );
    assert_eq!(device.memory_usage().in_use, buffers.len() * LEN * 4);
    verify(&mut stream, &buffers);
}

/// A device that is lost in the midst of it says so.
#[test]
fn a_device_that_is_lost_by_a_move_reports_its_cause() {
    let (device, _) = working(1);
    let mut stream = device.stream().unwrap();
    let buffers = sparse(&mut stream, 2, 2);
    device.faults().fail_nth(Call::Copy, 1, Severity::Sticky);
    let error = stream.compact().unwrap_err();
    assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
    assert!(matches!(stream.read(&buffers[0].1), Err(Error::DeviceLost { .. })));
}
