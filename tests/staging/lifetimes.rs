//! What a write that the driver refuses does with its bytes.

use std::sync::Arc;

use dacapo::prelude::*;

use crate::support_objects::*;

/// A refused write must not keep what it was given, and its memory must not become the device's.
#[test]
fn a_write_that_is_refused_lets_go_of_its_data() {
    let device = device(1);
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(N).unwrap();
    let data: Arc<[u32]> = vec![9; N + 1].into();
    let error = refused(s.write(&mut x, data.clone()));
    assert!(error.to_string().contains("65") && error.to_string().contains("64"), "{error}");
    assert_eq!(Arc::strong_count(&data), 1);
    device.faults().fail_nth(dacapo::Call::Write, 1, dacapo::host::Severity::Call);
    let fits: Arc<[u32]> = vec![9; N].into();
    let error = refused(s.write(&mut x, fits.clone()));
    assert_tainted(&mut s, &x, &error);
    assert_eq!((Arc::strong_count(&fits), device.memory_usage().pending_host), (1, 0));
    s.write(&mut x, fits).unwrap();
    assert_eq!(s.read(&x).unwrap(), [9; N]);
}
