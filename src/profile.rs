//! How long work took.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::command::{Stamp, Work as What};
use crate::backend::{Backend, Job};
use crate::capture::recorder::Kind;
use crate::enqueue::sealed::Route as Routed;
use crate::error::{Error, Result};
use crate::order::Mark;
use crate::submit::Route;
use crate::wait;
use crate::work::{Pass, Work};

/// How long work took, by [`Enqueue::profile`](crate::Enqueue::profile).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Profile {
    /// From the start of the first operation to the end of the last, as the stream's queue saw it.
    pub device: Duration,
    /// How long the calling thread took to enqueue it.
    pub enqueue: Duration,
    /// Whose clock measured `device`.
    pub clock: Clock,
}

/// Whose clock times of a device are measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Clock {
    /// The device's own, between its operations.
    Device,
    /// The host's, when it heard that the operations before were done: on a device without a clock the time is longer by
    /// what that takes. On the host backend the host is the device.
    Host,
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
    let value = f(&mut Work::lend(route.core, route.warm_up, Pass::Direct))?;
    let enqueued = started.elapsed();
    let mark = stamps.stop(&mut stream.route("profile")?)?;
    wait::wait(stream.core(), "profile", mark, None)?;
    let clock = stream.core().device.backend.clock();
    Ok((value, Profile { device: stamps.elapsed("profile")?, enqueue: enqueued, clock }))
}

/// The two moments that a queue notes, around what is to be timed.
#[derive(Clone, Default)]
pub(crate) struct Stamps {
    pub(crate) start: Arc<Stamp>,
    pub(crate) stop: Arc<Stamp>,
}

impl Stamps {
    fn start<B: Backend>(&self, route: &mut Route<'_, B>) -> Result<()> {
        stamp(route, &self.start).map(drop)
    }

    fn stop<B: Backend>(&self, route: &mut Route<'_, B>) -> Result<Mark> {
        let here = Mark { slot: route.core.slot, seq: 0 };
        Ok(stamp(route, &self.stop)?.unwrap_or(here))
    }

    /// What lies between the two, once both are done.
    ///
    /// # Errors
    /// What kept the queue from noting one of them: a time that was not measured is no time.
    pub(crate) fn elapsed(&self, operation: &'static str) -> Result<Duration> {
        let (start, stop) = (noted(&self.start, operation)?, noted(&self.stop, operation)?);
        Ok(stop.saturating_duration_since(start))
    }
}

fn noted(at: &Stamp, operation: &'static str) -> Result<Instant> {
    // Nothing at all is only found when the queue was given up, which `DeviceLost` has reported before.
    let gone = Error::Unsupported { operation, reason: "the device gave up its queue" };
    at.lock().clone().unwrap_or(Err(gone))
}

fn stamp<B: Backend>(route: &mut Route<'_, B>, at: &Arc<Stamp>) -> Result<Option<Mark>> {
    route.perform("profile", &[], Job(What::Stamp { at: at.clone() }), Kind::Plain, None)
}
