//! One replay, to be waited for.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use static_assertions::assert_impl_all;

use crate::backend::host::Host;
use crate::backend::{Backend, Waiter};
use crate::callback;
use crate::device::DeviceCore;
use crate::error::Result;
use crate::failures::Reports;
use crate::graph::GraphCore;
use crate::order::Mark;
use crate::profile::{Clock, Stamps};
use crate::wait;

/// One replay. May be dropped, kept, or waited for from any thread, also when the graph is gone.
pub struct Ticket<B: Backend = Host> {
    device: Arc<DeviceCore<B>>,
    reports: Arc<Reports>,
    mark: Mark,
}

impl<B: Backend> Ticket<B> {
    pub(crate) fn new(graph: &GraphCore<B>, mark: Mark) -> Self {
        Ticket { device: graph.device.clone(), reports: graph.reports.clone(), mark }
    }

    /// Whether the replay is done, well or not.
    pub fn is_done(&self) -> bool {
        self.device.passed(self.mark)
    }

    /// Blocks until the replay is done.
    ///
    /// # Errors
    /// Why an operation of this replay failed or was skipped: of several causes, the one that was known first;
    /// [`Error::OutcomeForgotten`], if so many replays of the graph failed since that nobody knows; [`Error::DeviceLost`].
    ///
    /// [`Error::DeviceLost`]: crate::Error::DeviceLost
    /// [`Error::OutcomeForgotten`]: crate::Error::OutcomeForgotten
    pub fn wait(&self) -> Result<()> {
        self.block(None)
    }

    /// [`wait`](Ticket::wait), for at most `timeout`.
    ///
    /// # Errors
    /// As for `wait`, and [`Error::Timeout`](crate::Error::Timeout): the replay goes on.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<()> {
        self.block(Some(timeout))
    }

    fn block(&self, timeout: Option<Duration>) -> Result<()> {
        callback::refuse("wait")?;
        wait::block(&self.device, Waiter::Anyone, "wait", self.mark, timeout)?;
        self.reports.check("wait", self.mark)
    }
}

/// One replay whose time is taken, by [`Graph::replay_timed`](crate::Graph::replay_timed). May be dropped, kept, or waited
/// for from any thread, also when the graph is gone.
pub struct TimedTicket<B: Backend = Host> {
    ticket: Ticket<B>,
    stamps: Stamps,
    /// The second stamp, behind the replay.
    done: Mark,
}

impl<B: Backend> TimedTicket<B> {
    pub(crate) fn new(ticket: Ticket<B>, stamps: Stamps, done: Mark) -> Self {
        TimedTicket { ticket, stamps, done }
    }

    /// Whether the replay is done, well or not, and its time taken.
    pub fn is_done(&self) -> bool {
        self.ticket.device.passed(self.done)
    }

    /// Blocks until the replay is done; returns how long the device took for it, by the device's own clock where it has
    /// one. Asked again, it says the same.
    ///
    /// # Errors
    /// As for [`Ticket::wait`]: a replay that failed, or that skipped what reads bytes which were never written, has no time.
    /// And what kept the device from noting it, though the replay went well.
    pub fn wait(&self) -> Result<Duration> {
        self.block(None)
    }

    /// [`wait`](TimedTicket::wait), for at most `timeout`.
    ///
    /// # Errors
    /// As for `wait`, and [`Error::Timeout`](crate::Error::Timeout): the replay goes on, and its time can be asked for later.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<Duration> {
        self.block(Some(timeout))
    }

    /// Whose clock measures the time.
    pub fn clock(&self) -> Clock {
        self.ticket.device.backend.clock()
    }

    /// The replay, for those who need no time.
    pub fn ticket(&self) -> &Ticket<B> {
        &self.ticket
    }

    fn block(&self, timeout: Option<Duration>) -> Result<Duration> {
        let Ticket { device, reports, mark } = &self.ticket;
        callback::refuse("wait")?;
        wait::block(device, Waiter::Anyone, "wait", self.done, timeout)?;
        reports.check("wait", *mark)?;
        self.stamps.elapsed("wait")
    }
}

impl<B: Backend> Clone for Ticket<B> {
    fn clone(&self) -> Self {
        Ticket { device: self.device.clone(), reports: self.reports.clone(), mark: self.mark }
    }
}

impl<B: Backend> Clone for TimedTicket<B> {
    fn clone(&self) -> Self {
        TimedTicket { ticket: self.ticket.clone(), stamps: self.stamps.clone(), done: self.done }
    }
}

impl<B: Backend> std::fmt::Debug for Ticket<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").field("done", &self.is_done()).finish_non_exhaustive()
    }
}

impl<B: Backend> std::fmt::Debug for TimedTicket<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TimedTicket").field("done", &self.is_done()).finish_non_exhaustive()
    }
}

assert_impl_all!(Ticket<Host>: Send, Sync, Clone);
assert_impl_all!(TimedTicket<Host>: Send, Sync, Clone);
