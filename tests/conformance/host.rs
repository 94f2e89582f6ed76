//! The host.

use dacapo::host::HostOptions;
use dacapo::{Call, Device, DeviceOptions};

/// The backend that is tested.
pub type Subject = dacapo::Host;

/// A device.
pub fn open(options: DeviceOptions<Subject>) -> Option<Device<Subject>> {
    Some(Device::open(options).unwrap())
}

/// The options with which the nodes of a graph run side by side.
pub fn side_by_side(options: DeviceOptions<Subject>) -> DeviceOptions<Subject> {
    options.backend(HostOptions::new().threads(3))
}

/// How often the driver was called, where the backend counts that, but for what happens by itself at any moment: releases
/// of memory, which the library's own thread makes, and the running of what was asked for earlier.
pub fn driver_calls(device: &Device<Subject>) -> Option<u64> {
    let at_once = |call: &Call| !matches!(call, Call::Free | Call::Execute);
    Some(Call::ALL.into_iter().filter(at_once).map(|call| device.faults().count(call)).sum())
}
