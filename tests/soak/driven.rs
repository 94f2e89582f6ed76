//! What a driver of hardware cannot be told to do, and what fails on it instead.

use std::panic::resume_unwind;

use dacapo::host::Severity;
use dacapo::{Call, Device, Enqueue, Error, Result, Slice, SliceMut, Touches};

use super::super::life::What;
use super::Subject;

/// Whether scratch memory that is read before it is written is an error.
pub const REFUSES_UNWRITTEN: bool = false;

/// What does not happen.
pub const NEVER: &[What] = &[];

/// Nobody can have the driver refuse a call; it does so itself where there is no memory.
pub fn refuse(_: &Device<Subject>, _: Call, _nth: u64, _: Severity) {}

/// Nothing is refused on demand.
pub fn stop_refusing(_: &Device<Subject>) {}

/// A callback that panics instead of writing what it was to.
pub struct Breaks;

impl Breaks {
    pub fn load(_: &Device<Subject>) -> Result<Self> {
        Ok(Breaks)
    }

    pub fn enqueue(
        &self,
        on: &mut impl Enqueue<Subject>,
        from: Slice<'_, u8, Subject>,
        to: &mut SliceMut<'_, u8, Subject>,
    ) -> Result<()> {
        let touches = Touches::new().reads(from).writes(to);
        // Not `panic!`, whose hook would print a report for each of thousands.
        on.host_call_with(touches, || resume_unwind(Box::new("it always does")))
    }

    /// Whether that is what an error is about.
    pub fn is_cause(error: &Error) -> bool {
        matches!(error, Error::CallbackPanicked { .. })
    }
}
