//! What an error means for the program, and what to rebuild.

#![forbid(unsafe_code)]

use crate::error::Error;

/// What an error means for the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A call that cannot be right. Nothing else was harmed; mend the call.
    Misuse,
    /// Memory or a limit ran out. Everything made before lives on; free something, or ask for less.
    Exhausted,
    /// Bytes that were never written. Write them again in full, or run again what failed.
    Tainted,
    /// One operation failed, and its outputs are tainted. Everything else lives on.
    Failed,
    /// The device is gone with all that lived on it. Make a new one.
    Lost,
    /// This device or backend cannot do it, now or later.
    Unsupported,
    /// A window was evicted. Its stream and the buffers from outside live on; capture again.
    Evicted,
    /// A wait ran out of time. What was waited for goes on.
    Timeout,
    /// The user's own error.
    Step,
}

impl Error {
    /// What this error means for the program.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::WrongDevice { .. }
            | Error::OutOfRange { .. }
            | Error::LengthMismatch { .. }
            | Error::CastSize { .. }
            | Error::CastAlignment { .. }
            | Error::Unchunkable { .. }
            | Error::BlockCounts { .. }
            | Error::CheckFailed { .. }
            | Error::StillRecording { .. }
            | Error::WrongPhase { .. }
            | Error::NotOpen { .. }
            | Error::TheirCapture { .. }
            | Error::WrongContext { .. }
            | Error::WrongTexture { .. }
            | Error::Kept { .. }
            | Error::SectionAllocates { .. }
            | Error::InCallback { .. } => ErrorKind::Misuse,
            Error::Limit { .. }
            | Error::LayoutTooBig { .. }
            | Error::OutOfMemory { .. }
            | Error::BufferTooBig { .. }
            | Error::TableTooBig { .. }
            | Error::ArenaLimit { .. }
            | Error::OutcomeForgotten { .. } => ErrorKind::Exhausted,
            Error::Tainted { .. }
            | Error::NotReplayed
            | Error::ReadBeforeWrite
            | Error::NeverSealed { .. }
            | Error::Abandoned { .. } => ErrorKind::Tainted,
            Error::KernelPanicked { .. }
            | Error::CallbackPanicked { .. }
            | Error::CheckPanicked { .. }
            | Error::SectionPanicked { .. }
            | Error::SectionBroken { .. }
            | Error::Driver { .. } => ErrorKind::Failed,
            Error::Doomed { cause, .. } => cause.kind(),
            Error::Evicted { .. } => ErrorKind::Evicted,
            Error::DeviceLost { .. } => ErrorKind::Lost,
            Error::Timeout { .. } => ErrorKind::Timeout,
            // A legal tensor, which this crate cannot transfer as one.
            Error::MissingSource { .. } | Error::UnsupportedStrides { .. } | Error::Unsupported { .. } => {
                ErrorKind::Unsupported
            }
            Error::Step(_) => ErrorKind::Step,
        }
    }
}
