//! The first CUDA device of the machine.

#[path = "driven.rs"]
mod driven;
#[path = "../cuda/turn.rs"]
mod turn;

use std::sync::{Arc, OnceLock};

use cudarc::driver::CudaContext;
use dacapo::cuda::CudaOptions;
use dacapo::{Device, DeviceOptions};

pub use driven::*;
pub use turn::forget;

/// The backend that is tested.
pub type Subject = dacapo::Cuda;

/// What to call on a program without a source for it.
pub const SOURCE: &str = ".ptx(..)";

/// Its name in messages.
pub const NAME: &str = "cuda";

/// A device, which no other test uses as long as the calling thread lives.
pub fn open(options: DeviceOptions<Subject>) -> Option<Device<Subject>> {
    /// The driver takes long to make a context, and would make one for each test.
    static KEPT: OnceLock<Arc<CudaContext>> = OnceLock::new();
    let device = turn::device_with(options)?;
    KEPT.get_or_init(|| CudaContext::new(0).unwrap());
    Some(device)
}

/// The options with which the nodes of a graph run side by side: any.
pub fn side_by_side(options: DeviceOptions<Subject>) -> DeviceOptions<Subject> {
    options
}

/// Whether an operation that meets several causes of failure always takes the first, by its arguments and their bytes: not
/// where a failure may be known before one that comes first.
pub const NAMES_THE_FIRST_CAUSE: bool = false;

/// Whether memory has addresses.
pub const HAS_ADDRESSES: bool = true;

/// How many blocks a grid may have along x: more than any test needs, or not.
pub const MOST_BLOCKS: usize = (1 << 31) - 1;

/// Whether a launch can find the number of its blocks in a buffer when it runs.
pub const INDIRECT: bool = false;

/// Whether a kernel may have scalars of every size, and elements of every kind of number.
pub const NUMBERS_OF_EVERY_SIZE: bool = true;

/// How often a test that makes graphs while a stream is held up is tried: the driver may make room for them, and wait.
pub const ATTEMPTS: usize = 3;

/// How many operations of one stream a test may hold up: a driver takes about 1000, and then its caller waits.
pub const MOST_HELD_UP: usize = 400;

/// How often a test loads what it could do without: each is compiled.
pub const MANY_LOADS: usize = 20;

/// The options with which a slot takes so many operations at once.
pub fn in_flight(options: DeviceOptions<Subject>, operations: usize) -> DeviceOptions<Subject> {
    options.backend(CudaOptions::new().in_flight(operations))
}

/// The fewest operations that a slot may be told to take at once, or few.
pub const LEAST_IN_FLIGHT: usize = 64;
