//! The first CUDA device of the machine.

#[path = "driven.rs"]
mod driven;
#[path = "../cuda/turn.rs"]
mod turn;

use dacapo::{Device, DeviceOptions};

pub use driven::*;

/// The backend that is driven.
pub type Subject = dacapo::Cuda;

/// Whether memory has addresses.
pub const HAS_ADDRESSES: bool = true;

/// How long it lasts, if nobody says.
pub const SECONDS: u64 = 10;

/// The device, unless there is none. It has so little memory that it sometimes has none left.
pub fn open(options: DeviceOptions<Subject>) -> Option<Device<Subject>> {
    turn::device_with(options.memory_limit(120 << 20))
}
