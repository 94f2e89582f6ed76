//! Fresh memory whose zeroing the driver refuses.

use dacapo::host::Severity;
use dacapo::{Call, Error, Zeroing};

use super::super::suite::memory::planted::{Ground, SIZES};
use super::super::suite::support::*;

/// Where the zeroing failed there is an error, in the call or in every later read, and never the old bytes.
#[test]
fn a_zeroing_that_fails_is_an_error_and_no_old_bytes() {
    let mut ground = Ground::new(Zeroing::OnRequest).unwrap();
    let faults = ground.device.faults();
    let s = &mut ground.streams[0];
    for size in SIZES {
        s.sync().unwrap();
        faults.fail_nth(Call::Fill, 1, Severity::Call);
        assert!(matches!(s.alloc::<u8>(size), Err(Error::Driver { call: Call::Fill, .. })));
        s.sync().unwrap();
        faults.fail_nth(Call::Execute, 1, Severity::Call);
        let unzeroed = s.alloc::<u8>(size).unwrap();
        let error = s.read(&unzeroed).unwrap_err();
        assert!(matches!(error.root(), Error::Driver { call: Call::Execute, .. }), "{error}");
        assert!(s.sync().is_err());
    }
}
