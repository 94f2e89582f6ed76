//! Waiting until the device is past an operation.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use crate::backend::{Backend, Waiter};
use crate::device::DeviceCore;
use crate::error::{Error, Result};
use crate::memory::drops;
use crate::order::Mark;
use crate::stream::StreamCore;
use crate::submit::Route;

/// Blocks until everything that the stream enqueued is done; returns what its calls could not report.
pub(crate) fn sync<B: Backend>(route: &mut Route<'_, B>, timeout: Option<Duration>) -> Result<()> {
    let mark = Mark { slot: route.core.slot, seq: route.core.last };
    wait(route.core, "sync", mark, timeout)?;
    match route.core.by.failures.take() {
        Some(error) => Err((*error).clone()),
        None => Ok(()),
    }
}

/// Blocks, on behalf of a stream, until `mark` has passed, and lets go of what that was to keep.
pub(crate) fn wait<B: Backend>(
    core: &StreamCore<B>,
    operation: &'static str,
    mark: Mark,
    timeout: Option<Duration>,
) -> Result<()> {
    block(&core.device, Waiter::Stream(core.id), operation, mark, timeout)?;
    drops::release(&core.device, mark.slot);
    Ok(())
}

/// Blocks until `mark` has passed.
pub(crate) fn block<B: Backend>(
    device: &DeviceCore<B>,
    waiter: Waiter,
    operation: &'static str,
    mark: Mark,
    timeout: Option<Duration>,
) -> Result<()> {
    // A lost device may never finish what it runs: who asks it to is told so at once.
    device.poison.check()?;
    let started = Instant::now();
    let deadline = timeout.and_then(|timeout| started.checked_add(timeout));
    let queue = &device.slot(mark.slot).queue;
    match device.backend.block(queue, mark.seq, waiter, deadline) {
        Ok(true) => device.poison.check(),
        Ok(false) => {
            device.poison.check()?;
            Err(Error::Timeout { operation, waited: started.elapsed() })
        }
        Err(fault) => Err(device.poison.absorb(fault)),
    }
}
