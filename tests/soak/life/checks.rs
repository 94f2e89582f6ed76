//! What an answer of the device may be.

use dacapo::{Error, ErrorKind};

use super::support::subject;
use super::tally::{What, count};

/// A refusal of the driver that somebody asked for, told to whom it happened.
pub fn is_injected(error: &Error) -> bool {
    match error {
        Error::Driver { message, .. } => message.contains("injected"),
        // Two injected faults can meet both tries of one reservation.
        Error::OutOfMemory { .. } => true,
        _ => false,
    }
}

/// A call that the driver may refuse.
pub fn answered<T>(what: &str, answer: Result<T, Error>) -> Option<T> {
    match answer {
        Ok(value) => Some(value),
        Err(error) if is_injected(&error) => {
            count(What::Refusal);
            None
        }
        Err(error) => panic!("{what}: {error:?}"),
    }
}

/// What a window that never became a graph may say.
pub fn is_end_of_window(error: &Error) -> bool {
    let root = error.root();
    is_injected(root) || matches!(root, Error::Evicted { .. } | Error::NeverSealed { .. })
}

/// What `sync` may report of earlier operations.
pub fn is_late(error: &Error) -> bool {
    match error.root() {
        root if subject::Breaks::is_cause(root) => true,
        root => is_injected(root),
    }
}

/// Compares what was read with what the bytes must be; `None` for bytes that were never written.
pub fn same_bytes(what: &str, found: Result<Vec<u8>, Error>, expected: Option<&[u8]>) {
    match (found, expected) {
        (Ok(found), Some(expected)) => {
            count(What::Read);
            if found != expected {
                panic!("{what}: {}", difference(&found, expected));
            }
        }
        (Ok(found), None) => panic!("{what}: {} bytes were read that nothing had written", found.len()),
        // Not as the cause of a taint: that would be a failure that spread too far.
        (Err(error), Some(_)) => assert!(is_injected(&error), "{what}: {error:?}, and the bytes are there"),
        (Err(error), None) => {
            count(What::TaintRead);
            assert!(may_taint(&error), "{what}: {error:?}");
        }
    }
}

fn may_taint(error: &Error) -> bool {
    let known = is_late(error) || is_end_of_window(error);
    known || matches!(error.root().kind(), ErrorKind::Tainted)
}

fn difference(found: &[u8], expected: &[u8]) -> String {
    let wrong = |at: &usize| found.get(*at) != expected.get(*at);
    let len = found.len().max(expected.len());
    let (first, count) = ((0..len).find(wrong).unwrap_or(0), (0..len).filter(wrong).count());
    let (is, be) = (found.get(first), expected.get(first));
    format!("{count} of {len} bytes differ, first at {first}: {is:?} and not {be:?}")
}
