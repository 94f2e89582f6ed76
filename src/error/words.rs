//! Parts of messages.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::{Abandonment, Error, Hindrance};

/// Prints a limit, or that there is none.
pub(super) struct Limitless(pub(super) Option<usize>);

impl std::fmt::Display for Limitless {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(limit) => write!(f, "{limit}"),
            None => f.write_str("none"),
        }
    }
}

/// Prints what had already doomed an evicted window.
pub(super) struct Before<'a>(pub(super) &'a Option<Arc<Error>>);

impl std::fmt::Display for Before<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(cause) => write!(f, ", after it had failed already: {cause}"),
            None => Ok(()),
        }
    }
}

impl std::fmt::Display for Hindrance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Hindrance::NotAdopted => {
                "the buffer's memory is the device's own; copy it to memory of the other library"
            }
            Hindrance::Cast => "the buffer is cast to other elements than it came with; cast it back",
            Hindrance::Part => "the buffer is one part of a split, and only the whole can be given back",
            Hindrance::Shared => {
                "the other part of the buffer's split still lives, so that this one is not the whole"
            }
            Hindrance::InGraph => "a graph uses the buffer; drop the graph",
            Hindrance::Held => {
                "an open window or a raw address holds the buffer; end the one, or drop the other"
            }
        })
    }
}

impl std::fmt::Display for Abandonment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Abandonment::Aborted => "aborted by its owner",
            Abandonment::Dropped => "dropped before its end",
        })
    }
}
