//! What a driver of hardware cannot be asked for, and how its streams are held up instead.

use dacapo::{Call, Device, DeviceOptions, Error, NoCapture, Result, Stream, StreamId};

use super::super::suite::support::Gate;
use super::{Subject, open};

/// Whether the driver can be told to refuse its calls.
pub const REFUSES: bool = false;

/// Whether a kernel may panic.
pub const KERNELS_PANIC: bool = false;

/// Whether the outputs of kernels in chunks are divided, and must come out even.
pub const RUNS_IN_CHUNKS: bool = false;

/// Whether a launch that finds too many blocks in a buffer when it runs says so.
pub const REPORTS_TOO_MANY_BLOCKS: bool = false;

/// Runs the work of a stepped device: there is none.
#[derive(Clone)]
pub enum Stepper {}

impl Stepper {
    pub fn step(&self, _: StreamId) -> bool {
        match *self {}
    }

    pub fn pending(&self, _: StreamId) -> usize {
        match *self {}
    }

    pub fn run_all(&self) -> usize {
        match *self {}
    }
}

/// A device that runs nothing by itself: there is none.
pub fn stepped(_: DeviceOptions<Subject>) -> Result<(Device<Subject>, Stepper)> {
    Err(Error::step("this backend has no stepped device"))
}

/// Lets the driver refuse the next such call, where it can be told to; returns whether it can.
pub fn refuse_next(_: &Device<Subject>, _: Call) -> bool {
    REFUSES
}

/// Lets the driver refuse the `nth` such call from here on, where it can be told to.
pub fn refuse_nth(_: &Device<Subject>, _: Call, _nth: u64) {}

/// Lets the driver refuse all such calls, where it can be told to.
pub fn refuse_all(_: &Device<Subject>, _: Call) {}

/// Lets the driver refuse nothing any more.
pub fn forget_refusals(_: &Device<Subject>) {}

/// How often the driver was asked for that, where the backend counts it.
pub fn calls_of(_: &Device<Subject>, _: Call) -> Option<u64> {
    None
}

/// How often the driver was called, where the backend counts that.
pub fn driver_calls(_: &Device<Subject>) -> Option<u64> {
    None
}

/// The same, where the device may be gone.
pub fn counter(_: &Device<Subject>) -> impl Fn() -> Option<u64> + Send + 'static {
    || None
}

/// A device that somebody holds up and lets go.
pub fn paced(options: DeviceOptions<Subject>) -> Option<(Device<Subject>, Pace)> {
    Some((open(options)?, Pace(None)))
}

/// Tells a device when to get on.
pub struct Pace(Option<Gate>);

impl Pace {
    /// Holds a stream up, where another one is let go.
    pub fn get_on(&mut self, stream: &mut Stream<NoCapture, Subject>, times: usize) {
        self.run_all();
        self.0 = (times % 2 == 1).then(|| Gate::close(stream));
    }

    /// Somebody is about to wait for what was not let run yet.
    pub fn before_a_wait(&mut self) {
        self.run_all();
    }

    /// Lets everything run.
    pub fn run_all(&mut self) {
        self.0.take().into_iter().for_each(Gate::open);
    }
}
