//! A consuming call that failed, with its input.

#![forbid(unsafe_code)]

use parking_lot::Mutex;
use static_assertions::assert_impl_all;

use crate::error::Error;

/// A call that consumes its input failed: the error, and the input (or the stream that a transition leads back to).
///
/// `?` turns it into [`Error`], into `anyhow::Error`, or into `Box<dyn std::error::Error + Send + Sync>`; the input is
/// dropped then. To go on with it, take it out by [`into_parts`](Refused::into_parts).
#[must_use = "it holds what the refused call was given"]
pub struct Refused<S> {
    // Behind a lock only to be `Sync`, as error types must be: a stream is `Send` and not `Sync`.
    input: Mutex<S>,
    error: Error,
}

impl<S> Refused<S> {
    pub(crate) fn new(input: S, error: Error) -> Self {
        Refused { input: Mutex::new(input), error }
    }

    /// What went wrong.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// What went wrong, dropping the input.
    pub fn into_error(self) -> Error {
        self.error
    }

    /// The input, and what went wrong.
    pub fn into_parts(self) -> (S, Error) {
        (self.input.into_inner(), self.error)
    }
}

impl<S> From<Refused<S>> for Error {
    fn from(refused: Refused<S>) -> Self {
        refused.error
    }
}

impl<S> std::fmt::Debug for Refused<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Refused").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<S> std::fmt::Display for Refused<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl<S> std::error::Error for Refused<S> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

assert_impl_all!(Refused<std::cell::Cell<u8>>: Send, Sync, std::error::Error);
