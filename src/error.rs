//! Everything that can go wrong, as one enum.

#![forbid(unsafe_code)]

mod kind;
mod words;

use std::sync::Arc;
use std::time::Duration;

use static_assertions::assert_impl_all;

pub use kind::ErrorKind;
use words::{Before, Limitless};

use crate::backend::{Call, Fault};
use crate::capture::status::WindowId;
use crate::kernel::grid::GridLimit;
use crate::phase::PhaseName;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong, with the numbers that a person needs.
///
/// What survives, and what to rebuild, goes by [`kind`](Error::kind). An error is cheap to clone: causes are shared.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An object of one device was used on another one.
    #[error(
        "{operation}: the {object} belongs to device {found}, this stream to device {expected}; copy through the host, or make it on this device"
    )]
    WrongDevice {
        /// The call that was refused.
        operation: &'static str,
        /// What was foreign: a buffer, a kernel, a graph.
        object: &'static str,
        /// The device of the stream.
        expected: u32,
        /// The device of the object.
        found: u32,
    },
    /// A range does not lie inside what it was taken from.
    #[error("elements {start}..{end} do not lie in a buffer of {len} elements")]
    OutOfRange {
        /// The first element asked for.
        start: usize,
        /// One past the last element asked for.
        end: usize,
        /// How many there are.
        len: usize,
    },
    /// Two lengths that must agree do not.
    #[error(
        "{operation}: the source has {source_len} elements, the destination {target_len}; take a slice of the longer one"
    )]
    LengthMismatch {
        /// The call that was refused.
        operation: &'static str,
        /// Elements in the source.
        source_len: usize,
        /// Elements in the destination.
        target_len: usize,
    },
    /// The elements of a tensor lie neither side by side nor in padded rows.
    #[error(
        "strides {strides:?} of a tensor of shape {shape:?} are neither contiguous nor row-major with padded rows; copy it into one that is, or transfer it row by row"
    )]
    UnsupportedStrides {
        /// The extents, outermost first.
        shape: Box<[usize]>,
        /// The strides in elements.
        strides: Box<[usize]>,
    },
    /// The elements of a tensor, with the padding between them, cannot be counted.
    #[error("a tensor of shape {shape:?}, with its padding, has more elements than can be addressed")]
    LayoutTooBig {
        /// The extents, outermost first.
        shape: Box<[usize]>,
    },
    /// A cast does not come out even.
    #[error("{bytes} bytes are not a whole number of elements of {element} bytes")]
    CastSize {
        /// Bytes to be cast.
        bytes: usize,
        /// The size of the new element type.
        element: usize,
    },
    /// A cast starts at a byte where the new element type may not start.
    #[error(
        "the range starts at byte {start} of its allocation, which is not a multiple of the {align} that the element type needs"
    )]
    CastAlignment {
        /// The first byte of the range.
        start: usize,
        /// The alignment of the new element type.
        align: usize,
    },
    /// A launch is larger than the device allows.
    #[error("{kernel}: {limit} is {requested}, and this device allows 1 to {allowed}")]
    Limit {
        /// The kernel's name.
        kernel: Arc<str>,
        /// Which limit.
        limit: GridLimit,
        /// What the launch asked for.
        requested: u64,
        /// What the device allows.
        allowed: u64,
    },
    /// An output of a kernel that runs in chunks cannot be divided evenly over the last extent of its grid.
    #[error(
        "{kernel}: an output of {len} elements cannot be divided evenly over the {outer} rows of the grid; make it a multiple of them"
    )]
    Unchunkable {
        /// The kernel's name.
        kernel: Arc<str>,
        /// Elements of the output.
        len: usize,
        /// The last extent of the grid.
        outer: usize,
    },
    /// A launch that takes its number of blocks from a buffer was not given one of three elements.
    #[error(
        "{kernel}: blocks are counted in x, y and z, by three elements, and the buffer of this indirect grid has {found}; take a slice of three"
    )]
    BlockCounts {
        /// The kernel's name.
        kernel: Arc<str>,
        /// Elements of the buffer.
        found: usize,
    },
    /// A launch check of the kernel's refused the launch.
    #[error("{kernel}: its check refused this launch: {message}")]
    CheckFailed {
        /// The kernel's name.
        kernel: Arc<str>,
        /// What the check said.
        message: Arc<str>,
    },
    /// A launch check panicked, so that the launch was not made.
    #[error("{kernel}: the check of this launch panicked: {message}")]
    CheckPanicked {
        /// The kernel's name.
        kernel: Arc<str>,
        /// The panic's message.
        message: Arc<str>,
    },
    /// A table given for a `Uniform` is larger than any device binds at once.
    #[error(
        "{kernel}: a table of {requested} bytes is larger than the {limit} of a `Uniform`; write it to a buffer and pass that as an `In`"
    )]
    TableTooBig {
        /// The kernel's name.
        kernel: Arc<str>,
        /// Bytes of the table.
        requested: usize,
        /// The most that one table may have.
        limit: usize,
    },
    /// The program has no source for this backend.
    #[error("program `{program}` has no source for the {backend} backend; add `.{hint}(..)` before `load`")]
    MissingSource {
        /// The program's name.
        program: Arc<str>,
        /// The backend that it was loaded for.
        backend: &'static str,
        /// The method of `Program` that supplies what is missing.
        hint: &'static str,
    },
    /// No memory, although everything that could be given back was.
    #[error(
        "out of memory: {requested} bytes requested with {held} held (limit {}); {free_in_pool} of them are free in its pool, the largest piece has {largest_free}",
        Limitless(*limit)
    )]
    OutOfMemory {
        /// Bytes asked for.
        requested: usize,
        /// Bytes that the device holds from the driver.
        held: usize,
        /// Bytes of those that are free in the pool that was asked.
        free_in_pool: usize,
        /// Bytes of the largest piece of those.
        largest_free: usize,
        /// The limit that the user set, if any.
        limit: Option<usize>,
    },
    /// No device of this kind could ever serve the request.
    #[error("a buffer of {requested} bytes is larger than the {limit} that this device can address at once")]
    BufferTooBig {
        /// Bytes asked for (saturating).
        requested: usize,
        /// The most that one buffer may have.
        limit: usize,
    },
    /// The arena planned for a graph is larger than `CaptureOptions::arena_limit`.
    #[error("the graph needs an arena of {needed} bytes, and its options allow {limit}")]
    ArenaLimit {
        /// Bytes that the plan needs.
        needed: usize,
        /// Bytes that the options allow.
        limit: usize,
    },
    /// The bytes were never written, because what should have written them failed.
    ///
    /// A byte names one cause to whoever reads it, until it is written again: that of the last operation that was to write it.
    /// Where bytes of several causes are read at once, by the program or by an operation that is skipped for it, one of them
    /// is named. Which one is not promised: a failure may be known before another one that came first.
    #[error("these bytes were not written: {cause}")]
    Tainted {
        /// The failure at the root, however many skipped operations ago.
        #[source]
        cause: Arc<Error>,
    },
    /// The buffer was born in a recording whose graph has not been replayed yet.
    #[error("nothing has written this buffer yet: it was recorded, and its graph was not replayed since")]
    NotReplayed,
    /// Scratch memory was read before it was written, on a device that detects it.
    #[error("this scratch buffer was read before anything wrote it; use `alloc`, which reads as zero")]
    ReadBeforeWrite,
    /// The buffer was born in a recording that is still open, and was used outside it.
    #[error(
        "{operation}: the buffer was born in {window}, which is still recording; end the recording first"
    )]
    StillRecording {
        /// The call that was refused.
        operation: &'static str,
        /// The window that it was born in.
        window: WindowId,
    },
    /// The buffer was born in a recording that never became a graph.
    #[error("the buffer was born in a recording that never became a graph: {cause}")]
    NeverSealed {
        /// What ended the recording.
        #[source]
        cause: Arc<Error>,
    },
    /// The recording was given up by its owner.
    #[error("{window} was {how}")]
    Abandoned {
        /// The window.
        window: WindowId,
        /// How it ended.
        how: Abandonment,
    },
    /// An earlier operation of this window failed, so that it can only be ended or aborted.
    #[error("{operation}: not recorded, since the recording already failed: {cause}")]
    Doomed {
        /// The call that was refused.
        operation: &'static str,
        /// The failure that doomed the recording.
        #[source]
        cause: Arc<Error>,
    },
    /// Another thread evicted the window.
    #[error("{window} was evicted by {by}{}", Before(doomed_by))]
    Evicted {
        /// The window.
        window: WindowId,
        /// The thread that evicted it.
        by: Arc<str>,
        /// What had already doomed it, if anything.
        doomed_by: Option<Arc<Error>>,
    },
    /// No window of that name is open, or its owner is sealing it just now.
    #[error("{window} is not open any more: there is nothing to evict")]
    NotOpen {
        /// The window that was named.
        window: WindowId,
    },
    /// A stream whose phase is known only at run time was asked for something that its phase does not allow.
    #[error("{operation}: the stream is {is}, and this needs {needs}")]
    WrongPhase {
        /// The call that was refused.
        operation: &'static str,
        /// The phase that the stream is in.
        is: PhaseName,
        /// What the call needs.
        needs: &'static str,
    },
    /// A call from inside a kernel or a host callback. The device runs it, so nothing that asks the device may wait.
    #[error(
        "{operation}: called from inside a kernel or host callback, where no call of this crate is allowed"
    )]
    InCallback {
        /// The call that was refused.
        operation: &'static str,
    },
    /// A kernel panicked; its outputs are tainted.
    #[error("kernel `{kernel}` panicked: {message}")]
    KernelPanicked {
        /// The kernel's name.
        kernel: Arc<str>,
        /// The panic's message.
        message: Arc<str>,
    },
    /// A host callback panicked; what it was to write is tainted.
    #[error("a host callback panicked: {message}")]
    CallbackPanicked {
        /// The panic's message.
        message: Arc<str>,
    },
    /// A raw section panicked; what it was to write is tainted.
    #[error("a raw section panicked: {message}")]
    SectionPanicked {
        /// The panic's message.
        message: Arc<str>,
    },
    /// The driver gave the capture of a raw section up, because of a call inside it.
    #[error(
        "the driver gave up what a raw section enqueued: {message}; inside, nothing may wait for the section's queue nor for the whole context, and what other queues do for it must be joined to it"
    )]
    SectionBroken {
        /// What the driver said.
        message: Arc<str>,
    },
    /// A raw section allocates memory of the driver's, or frees it, in the order of its queue.
    #[error(
        "a raw section enqueued {allocations} allocations and {frees} releases of memory, which a graph cannot repeat; give the library a workspace: a buffer among the arguments, or memory that the section returns"
    )]
    SectionAllocates {
        /// How many allocations it enqueued.
        allocations: usize,
        /// How many releases it enqueued.
        frees: usize,
    },
    /// So many replays of the graph failed after this one that it is not known any more whether this one did.
    #[error(
        "{operation}: how this replay ended is not known any more, since more than {kept} of its graph failed; wait for a ticket before that many more replays"
    )]
    OutcomeForgotten {
        /// The call that asked.
        operation: &'static str,
        /// How many failed replays a graph remembers.
        kept: usize,
    },
    /// The driver refused a call. The device goes on.
    #[error("the driver refused {call}: {message}")]
    Driver {
        /// Which call.
        call: Call,
        /// What it said.
        message: Arc<str>,
    },
    /// The device is gone: a sticky fault, after which no call can succeed.
    #[error("the device is lost: {first}; make a new `Device` and rebuild what lived on this one")]
    DeviceLost {
        /// The fault that poisoned it.
        first: Arc<Fault>,
    },
    /// The wait was longer than its limit. What was waited for goes on.
    #[error("{operation}: not done after {waited:?}; it goes on, and may be waited for again")]
    Timeout {
        /// The call that gave up.
        operation: &'static str,
        /// How long it waited.
        waited: Duration,
    },
    /// This backend, or this device, cannot do it.
    #[error("{operation} is not supported: {reason}")]
    Unsupported {
        /// The call that was refused.
        operation: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// A stream of another library's is capturing, so that nothing can be ordered against it.
    #[error(
        "{operation}: the other library's stream is capturing; do this before its capture begins, or after it has ended"
    )]
    TheirCapture {
        /// The call that was refused.
        operation: &'static str,
    },
    /// Something of another library's is in another context of the driver than the device.
    #[error(
        "{operation}: the {object} is of another context than the device; open the device with the context that it comes from"
    )]
    WrongContext {
        /// The call that was refused.
        operation: &'static str,
        /// What is elsewhere.
        object: &'static str,
    },
    /// A texture has not what is to be copied from it, or not in a form that can be copied.
    #[error("copy_from_texture: of this texture that cannot be copied: {reason}")]
    WrongTexture {
        /// What it lacks, and what to do.
        reason: &'static str,
    },
    /// A buffer cannot be handed to the library that its memory came from.
    #[error("{operation}: {because}")]
    Kept {
        /// The call that was refused.
        operation: &'static str,
        /// What stands in the way.
        because: Hindrance,
    },
    /// The user's own error, from inside a recorded or captured step.
    #[error("the step failed: {0}")]
    Step(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

/// How a recording ended without becoming a graph, when nothing failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Abandonment {
    /// By a call of `abort`.
    Aborted,
    /// Its stream was dropped: an early return, or a panic.
    Dropped,
}

/// Why a buffer cannot be given back to the library that its memory came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hindrance {
    /// Its memory is the device's own.
    NotAdopted,
    /// It is cast to other elements than those of the slice.
    Cast,
    /// It is one part of a split.
    Part,
    /// The other part of a split still lives, even if that has no elements.
    Shared,
    /// A graph uses it.
    InGraph,
    /// An open window, or a raw address, holds it.
    Held,
}

impl Error {
    /// Wraps an error of the user's own, so that a recorded step can return it with `?`.
    ///
    /// ```
    /// # use dacapo::Error;
    /// let parsed: Result<i32, Error> = "x".parse::<i32>().map_err(Error::step);
    /// assert!(parsed.unwrap_err().step_as::<std::num::ParseIntError>().is_some());
    /// ```
    ///
    /// An error of this crate stays what it is.
    pub fn step(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        match error.into().downcast::<Error>() {
            Ok(own) => *own,
            Err(error) => Error::Step(Arc::from(error)),
        }
    }

    /// The user's own error inside an [`Error::Step`], if it is one of type `E`, also where the step's failure is the
    /// [root](Error::root) of this one.
    pub fn step_as<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self.root() {
            Error::Step(error) => error.downcast_ref(),
            _ => None,
        }
    }

    /// The failure at the bottom: what [`Error::Tainted`] and its like carry, however deep.
    pub fn root(&self) -> &Error {
        match self {
            Error::Tainted { cause } | Error::NeverSealed { cause } | Error::Doomed { cause, .. } => {
                cause.root()
            }
            other => other,
        }
    }
}

assert_impl_all!(Error: Send, Sync, Clone, std::error::Error);

#[cfg(test)]
mod tests {
    use super::*;

    /// A blanket `map_err(Error::step)` would else hide what an error means for the program.
    #[test]
    fn an_error_of_this_crate_stays_what_it_is_inside_a_step() {
        let error = Error::step(Error::NotReplayed);
        assert_eq!(error.kind(), ErrorKind::Tainted);
        assert_eq!(Error::step("text").kind(), ErrorKind::Step);
    }
}
