//! After how many dispatches an encoder is submitted.

use std::fmt;
use std::ops::Range;

/// The first submit has so many dispatches, each later one twice as many, up to the most.
#[derive(Clone, Copy)]
pub struct Schedule {
    first: u32,
    most: u32,
}

impl Schedule {
    pub const ALL: Schedule = Schedule { first: u32::MAX, most: u32::MAX };

    /// Those that a program may well try.
    pub const USUAL: [Schedule; 13] = [
        Schedule::every(32),
        Schedule::every(64),
        Schedule::every(128),
        Schedule::every(256),
        Schedule::every(512),
        Schedule::ALL,
        Schedule::rising(8, 128),
        Schedule::rising(16, 128),
        Schedule::rising(16, 256),
        Schedule::rising(32, 256),
        Schedule::rising(1, 256),
        Schedule::rising(64, 512),
        Schedule::rising(16, 2048),
    ];

    pub const fn every(dispatches: u32) -> Self {
        Schedule { first: dispatches, most: dispatches }
    }

    pub const fn rising(first: u32, most: u32) -> Self {
        Schedule { first, most }
    }

    /// Whether a submit begins with this node.
    pub fn starts(self, node: u32) -> bool {
        self.chunks(u32::MAX)
            .map(|chunk| chunk.start)
            .take_while(|start| *start <= node)
            .any(|start| start == node)
    }

    /// The submits of so many dispatches.
    pub fn chunks(self, nodes: u32) -> impl Iterator<Item = Range<u32>> {
        let (mut start, mut size) = (0, self.first);
        std::iter::from_fn(move || {
            let chunk = start..start + size.min(nodes - start);
            start = chunk.end;
            size = size.saturating_mul(2).min(self.most);
            (!chunk.is_empty()).then_some(chunk)
        })
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Schedule { first: u32::MAX, .. } => f.write_str("all at once"),
            Schedule { first, most } if first == most => write!(f, "every {most}"),
            Schedule { first, most } => write!(f, "{first}, doubled up to {most}"),
        }
    }
}
