//! The fastest adapter that wgpu finds.

#[path = "driven.rs"]
mod driven;
#[path = "../support_wgpu/mod.rs"]
mod support_wgpu;

use std::sync::OnceLock;

use dacapo::wgpu::WgpuOptions;
use dacapo::{Device, DeviceOptions};

pub use driven::*;

/// The backend that is tested.
pub type Subject = dacapo::Wgpu;

/// What to call on a program without a source for it.
pub const SOURCE: &str = ".wgsl(..)";

/// Its name in messages.
pub const NAME: &str = "wgpu";

/// A device, on one of wgpu's that all tests share: a driver takes long to open one, and would open one for each test.
pub fn open(options: DeviceOptions<Subject>) -> Option<Device<Subject>> {
    static KEPT: OnceLock<Option<Device<Subject>>> = OnceLock::new();
    let kept = KEPT.get_or_init(support_wgpu::device).as_ref()?;
    let (device, queue) = (kept.wgpu_device().clone(), kept.wgpu_queue().clone());
    support_wgpu::device_with(options.map_backend(|options| options.parts(device, queue)))
}

/// The options with which the nodes of a graph run side by side: none do.
pub fn side_by_side(options: DeviceOptions<Subject>) -> DeviceOptions<Subject> {
    options
}

/// Whether an operation that meets several causes of failure always takes the first, by its arguments and their bytes: not
/// where a failure may be known before one that comes first.
pub const NAMES_THE_FIRST_CAUSE: bool = true;

/// Whether memory has addresses.
pub const HAS_ADDRESSES: bool = false;

/// How many blocks a grid may have along x: more than any test needs, or not.
pub const MOST_BLOCKS: usize = 65_535;

/// Whether a launch can find the number of its blocks in a buffer when it runs.
pub const INDIRECT: bool = true;

/// Whether a kernel may have scalars of every size, and elements of every kind of number.
pub const NUMBERS_OF_EVERY_SIZE: bool = false;

/// Forgets something of a device, which then stays for ever.
pub use std::mem::forget;

/// How often a test that makes graphs while a stream is held up is tried: none of that may wait.
pub const ATTEMPTS: usize = 1;

/// How many operations of one stream a test may hold up.
pub const MOST_HELD_UP: usize = 400;

/// How often a test loads what it could do without: each is compiled.
pub const MANY_LOADS: usize = 20;

/// The options with which a slot takes so many operations at once.
pub fn in_flight(options: DeviceOptions<Subject>, operations: usize) -> DeviceOptions<Subject> {
    options.backend(WgpuOptions::new().in_flight(operations))
}

/// The fewest operations that a slot may be told to take at once, or few.
pub const LEAST_IN_FLIGHT: usize = 64;
