//! How long work took.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::backend::command::Work as What;
use crate::backend::{Backend, Job};
use crate::capture::recorder::Kind;
use crate::enqueue::sealed::Route as Routed;
use crate::error::Result;
use crate::order::Mark;
use crate::submit::{self, Route};
use crate::work::{Pass, Work};

/// How long work took, by [`Enqueue::profile`](crate::Enqueue::profile).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Profile {
    /// From the start of the first operation to the end of the last, as the stream's queue saw it.
    pub device: Duration,
    /// How long the calling thread took to enqueue it.
    pub enqueue: Duration,
}

/// Runs `f` on the stream and measures it.
pub(crate) fn measure<B: Backend, S: Routed<B> + ?Sized, T>(
    stream: &mut S,
    f: impl for<'w> FnOnce(&mut Work<'w, B>) -> Result<T>,
) -> Result<(T, Profile)> {
    let stamps = Stamps::default();
    let started = Instant::now();
    let mut route = stream.route("profile")?;
    stamps.start(&mut route)?;
    let value = f(&mut Work::lend(route.core, None, Pass::Direct))?;
    drop(route);
    let enqueued = started.elapsed();
    let mark = stamps.stop(&mut stream.route("profile")?)?;
    submit::wait(stream.core(), "profile", mark, None)?;
    Ok((value, stamps.profile(enqueued)))
}

/// The two moments that the queue notes.
#[derive(Default)]
struct Stamps {
    start: Arc<Mutex<Option<Instant>>>,
    stop: Arc<Mutex<Option<Instant>>>,
}

impl Stamps {
    fn start<B: Backend>(&self, route: &mut Route<'_, B>) -> Result<()> {
        stamp(route, &self.start).map(drop)
    }

    fn stop<B: Backend>(&self, route: &mut Route<'_, B>) -> Result<Mark> {
        let here = Mark { slot: route.core.slot, seq: 0 };
        Ok(stamp(route, &self.stop)?.unwrap_or(here))
    }

    fn profile(&self, enqueue: Duration) -> Profile {
        let between = self.start.lock().zip(*self.stop.lock());
        let device = between.map_or(Duration::ZERO, |(start, stop)| stop.saturating_duration_since(start));
        Profile { device, enqueue }
    }
}

fn stamp<B: Backend>(route: &mut Route<'_, B>, at: &Arc<Mutex<Option<Instant>>>) -> Result<Option<Mark>> {
    route.perform("profile", Job(What::Stamp { at: at.clone() }), Kind::Plain, None)
}
