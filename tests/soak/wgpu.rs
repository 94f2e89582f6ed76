//! The fastest adapter that wgpu finds.

#[path = "driven.rs"]
mod driven;
#[path = "../support_wgpu/mod.rs"]
mod support_wgpu;

use dacapo::{Device, DeviceOptions};

pub use driven::*;

/// The backend that is driven.
pub type Subject = dacapo::Wgpu;

/// Whether memory has addresses.
pub const HAS_ADDRESSES: bool = false;

/// How long it lasts, if nobody says.
pub const SECONDS: u64 = 20;

/// The device, unless there is none. It has so little memory that it sometimes has none left.
pub fn open(options: DeviceOptions<Subject>) -> Option<Device<Subject>> {
    support_wgpu::device_with(options.memory_limit(80 << 20))
}
