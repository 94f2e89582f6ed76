//! The host.

use dacapo::host::{HostOptions, Severity};
use dacapo::{Call, Device, DeviceOptions, NoCapture, Result, Stream};

/// The backend that is tested.
pub type Subject = dacapo::Host;

/// What to call on a program without a source for it.
pub const SOURCE: &str = ".host(..)";

/// Its name in messages.
pub const NAME: &str = "host";

/// A device.
pub fn open(options: DeviceOptions<Subject>) -> Option<Device<Subject>> {
    Some(Device::open(options).unwrap())
}

/// The options with which the nodes of a graph run side by side.
pub fn side_by_side(options: DeviceOptions<Subject>) -> DeviceOptions<Subject> {
    options.backend(HostOptions::new().threads(3))
}

/// Whether the driver can be told to refuse its calls.
pub const REFUSES: bool = true;

/// Whether a kernel may panic.
pub const KERNELS_PANIC: bool = true;

/// Whether the outputs of kernels in chunks are divided, and must come out even.
pub const RUNS_IN_CHUNKS: bool = true;

/// Whether an operation that meets several causes of failure always takes the first, by its arguments and their bytes: not
/// where a failure may be known before one that comes first.
pub const NAMES_THE_FIRST_CAUSE: bool = true;

/// Whether memory has addresses.
pub const HAS_ADDRESSES: bool = true;

/// How many blocks a grid may have along x: more than any test needs, or not.
pub const MOST_BLOCKS: usize = 1 << 31;

/// Whether a launch can find the number of its blocks in a buffer when it runs.
pub const INDIRECT: bool = true;

/// Whether it says so if they are more than the device allows.
pub const REPORTS_TOO_MANY_BLOCKS: bool = true;

/// Whether a kernel may have scalars of every size, and elements of every kind of number.
pub const NUMBERS_OF_EVERY_SIZE: bool = true;

/// Runs the work of a stepped device.
pub use dacapo::host::Stepper;

/// A device that runs nothing by itself.
pub fn stepped(options: DeviceOptions<Subject>) -> Result<(Device<Subject>, Stepper)> {
    Device::stepped(options)
}

/// Lets the driver refuse the next such call, where it can be told to; returns whether it can.
pub fn refuse_next(device: &Device<Subject>, call: Call) -> bool {
    refuse_nth(device, call, 1);
    REFUSES
}

/// Lets the driver refuse the `nth` such call from here on, where it can be told to.
pub fn refuse_nth(device: &Device<Subject>, call: Call, nth: u64) {
    device.faults().fail_nth(call, nth, Severity::Call);
}

/// Lets the driver refuse all such calls, where it can be told to.
pub fn refuse_all(device: &Device<Subject>, call: Call) {
    device.faults().fail_all(call, Severity::Call);
}

/// Lets the driver refuse nothing any more.
pub fn forget_refusals(device: &Device<Subject>) {
    device.faults().clear();
}

/// Forgets something of a device, which then stays for ever.
pub use std::mem::forget;

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

/// How often a test that makes graphs while a stream is held up is tried: none of that may wait.
pub const ATTEMPTS: usize = 1;

/// How many operations of one stream a test may hold up.
pub const MOST_HELD_UP: usize = 1000;

/// How often a test loads what it could do without.
pub const MANY_LOADS: usize = 500;

/// The options with which a slot takes so many operations at once.
pub fn in_flight(options: DeviceOptions<Subject>, operations: usize) -> DeviceOptions<Subject> {
    options.backend(HostOptions::new().in_flight(operations))
}

/// The fewest operations that a slot may be told to take at once, or few.
pub const LEAST_IN_FLIGHT: usize = 4;

/// A device that does nothing but what it is told to, or what somebody waits for.
pub fn paced(options: DeviceOptions<Subject>) -> Option<(Device<Subject>, Pace)> {
    let (device, stepper) = Device::<Subject>::stepped(options).unwrap();
    Some((device, Pace(stepper)))
}

/// Tells a device when to get on.
pub struct Pace(Stepper);

impl Pace {
    /// Lets so many operations of a stream run.
    pub fn get_on(&mut self, stream: &mut Stream<NoCapture, Subject>, times: usize) {
        (0..times).for_each(|_| _ = self.0.step(stream.id()));
    }

    /// Somebody is about to wait for what was not let run yet: the wait runs it.
    pub fn before_a_wait(&mut self) {}

    /// Lets everything run.
    pub fn run_all(&mut self) {
        self.0.run_all();
    }
}
