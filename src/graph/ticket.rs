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
use crate::submit;

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
    /// The first failure that this replay met while it ran; [`Error::OutcomeForgotten`], if so many replays of the graph
    /// failed since that nobody knows; [`Error::DeviceLost`].
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
        submit::block(&self.device, Waiter::Anyone, "wait", self.mark, timeout)?;
        self.reports.check("wait", self.mark)
    }
}

impl<B: Backend> Clone for Ticket<B> {
    fn clone(&self) -> Self {
        Ticket { device: self.device.clone(), reports: self.reports.clone(), mark: self.mark }
    }
}

impl<B: Backend> std::fmt::Debug for Ticket<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").field("done", &self.is_done()).finish_non_exhaustive()
    }
}

assert_impl_all!(Ticket<Host>: Send, Sync, Clone);
