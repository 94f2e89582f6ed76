//! What is left behind by a command that did not run: its output carries the cause, and whoever waits is told.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::backend::command::Work;
use crate::backend::{Backend, CommandRef};
use crate::error::Error;
use crate::taint;

/// Instead of running a command: its output was not written.
pub(crate) fn fail<B: Backend>(command: CommandRef<'_, B>, cause: &Arc<Error>) {
    refuse(command, cause, (**cause).clone());
}

/// Instead of running a command whose input was never written.
pub(crate) fn skip<B: Backend>(command: CommandRef<'_, B>, cause: &Arc<Error>) {
    refuse(command, cause, carried(cause));
}

/// What a reader of tainted bytes is told: the root cause, unless the state of the bytes says it all.
pub(crate) fn carried(cause: &Arc<Error>) -> Error {
    match &**cause {
        Error::NotReplayed | Error::ReadBeforeWrite | Error::DeviceLost { .. } => (**cause).clone(),
        _ => Error::Tainted { cause: cause.clone() },
    }
}

/// Nothing comes of a command: its output carries `cause`, and who waits for what it gives is told `why`.
fn refuse<B: Backend>(command: CommandRef<'_, B>, cause: &Arc<Error>, why: Error) {
    taint::fail(command, cause);
    match &command.job.0 {
        Work::Read { into, .. } => into.fail(why),
        Work::Stamp { at } => *at.lock() = Some(Err(why)),
        Work::Launch { .. } | Work::LaunchIndirect { .. } | Work::HostCall { .. } | Work::Raw { .. } => {}
        Work::Copy | Work::Move | Work::Fill | Work::Write { .. } => {}
    }
}
