//! How long work took.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::backend::command::Work as What;
use crate::backend::{Backend, Job};
use crate::capture::recorder::Kind;
use crate::error::Result;
use crate::order::Mark;
use crate::submit::Route;

/// How long work took, by [`Enqueue::profile`](crate::Enqueue::profile).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Profile {
    /// From the start of the first operation to the end of the last, as the stream's queue saw it.
    pub device: Duration,
    /// How long the calling thread took to enqueue it.
    pub enqueue: Duration,
}

/// The two moments that the queue notes.
#[derive(Default)]
pub(crate) struct Stamps {
    start: Arc<Mutex<Option<Instant>>>,
    stop: Arc<Mutex<Option<Instant>>>,
}

impl Stamps {
    pub(crate) fn start<B: Backend>(&self, route: &mut Route<'_, B>) -> Result<()> {
        stamp(route, &self.start).map(drop)
    }

    pub(crate) fn stop<B: Backend>(&self, route: &mut Route<'_, B>) -> Result<Mark> {
        let here = Mark { slot: route.core.slot, seq: 0 };
        Ok(stamp(route, &self.stop)?.unwrap_or(here))
    }

    pub(crate) fn profile(&self, enqueue: Duration) -> Profile {
        let between = self.start.lock().zip(*self.stop.lock());
        let device = between.map_or(Duration::ZERO, |(start, stop)| stop.saturating_duration_since(start));
        Profile { device, enqueue }
    }
}

fn stamp<B: Backend>(route: &mut Route<'_, B>, at: &Arc<Mutex<Option<Instant>>>) -> Result<Option<Mark>> {
    route.perform("profile", Job(What::Stamp { at: at.clone() }), Kind::Plain, None)
}
