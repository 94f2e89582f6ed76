//! The host.

use dacapo::host::{HostOptions, Severity};
use dacapo::{Call, Device, DeviceOptions};

/// The backend that is tested.
pub type Subject = dacapo::Host;

/// What to call on a program without a source for it.
pub const SOURCE: &str = ".host(..)";

/// A device.
pub fn open(options: DeviceOptions<Subject>) -> Option<Device<Subject>> {
    Some(Device::open(options).unwrap())
}

/// The options with which the nodes of a graph run side by side.
pub fn side_by_side(options: DeviceOptions<Subject>) -> DeviceOptions<Subject> {
    options.backend(HostOptions::new().threads(3))
}

/// Lets the driver refuse the next such call, where it can be told to; returns whether it can.
pub fn refuse_next(device: &Device<Subject>, call: Call) -> bool {
    device.faults().fail_nth(call, 1, Severity::Call);
    true
}

/// How often the driver was asked for that, where the backend counts it.
pub fn calls_of(device: &Device<Subject>, call: Call) -> Option<u64> {
    Some(device.faults().count(call))
}

/// How often the driver was called, where the backend counts that, but for what happens by itself at any moment: releases
/// of memory, which the library's own thread makes, and the running of what was asked for earlier.
pub fn driver_calls(device: &Device<Subject>) -> Option<u64> {
    counter(device)()
}

/// The same, where the device may be gone.
pub fn counter(device: &Device<Subject>) -> impl Fn() -> Option<u64> + Send + 'static {
    let faults = device.faults();
    let at_once = |call: &Call| !matches!(call, Call::Free | Call::Execute);
    move || Some(Call::ALL.into_iter().filter(at_once).map(|call| faults.count(call)).sum())
}
