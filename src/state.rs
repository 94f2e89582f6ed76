//! Tokens for what operations share and no argument shows.

#![forbid(unsafe_code)]

use std::sync::Arc;

use static_assertions::assert_impl_all;

use crate::access::Access;
use crate::backend::Backend;
use crate::backend::host::Host;
use crate::device::{Device, DeviceCore};
use crate::kernel::args::UseOf;
use crate::memory::allocation::Allocation;

/// A name for something that operations share behind the arguments: the workspace of a library's handle, a `__device__`
/// variable, a table on the host.
///
/// Operations that name one token keep their order, as if each read and wrote a buffer of that name: on all streams of
/// the device, within a graph and between graphs. A kernel names it with [`Kernel::with_state`](crate::Kernel::with_state),
/// a [raw section](crate::EnqueueRaw::raw) among its arguments. Clones are the same token; it holds no memory, and may be
/// dropped at any time.
///
/// **A token carries order and no failure.** An operation that fails, or is skipped since what it reads was never written,
/// leaves its outputs tainted, and the token as it was: such state is most often scratch, which the next operation starts
/// anew, and nothing ever writes a token in full, so that a failure would stay with its users for good. What
/// must not be used after a failed step (the state of a random generator that missed one) belongs into a buffer,
/// passed as an [`InOut`](crate::InOut).
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use dacapo::{State, prelude::*};
///
/// # fn main() -> dacapo::Result<()> {
/// let device = Device::host()?;
/// let log = Arc::new(Mutex::new(Vec::new()));
/// let (state, lines) = (State::new(&device), log.clone());
/// let note = Program::<(u32,)>::new("note")
///     .host(move |(line,), _| lines.lock().unwrap().push(line))
///     .load(&device)?
///     .with_state(&state);
/// // The two share no buffer, and run one after the other all the same.
/// let mut stream = device.stream()?;
/// let (mut graph, ()) = stream.record(|work| {
///     work.launch(&note, Grid::covering(1), (1u32,))?;
///     work.launch(&note, Grid::covering(1), (2u32,))
/// })?;
/// assert_eq!(graph.edges(), 1);
/// graph.replay(&mut stream)?.wait()?;
/// assert_eq!(*log.lock().unwrap(), [1, 2]);
/// # Ok(())
/// # }
/// ```
pub struct State<B: Backend = Host> {
    token: Arc<Allocation<B>>,
}

impl<B: Backend> State<B> {
    /// A new token, for operations of `device`. Asks nothing of the driver.
    pub fn new(device: &Device<B>) -> Self {
        Self::of(&device.core)
    }

    pub(crate) fn of(device: &Arc<DeviceCore<B>>) -> Self {
        State { token: Allocation::token(device) }
    }

    /// A use of it.
    pub(crate) fn used(&self) -> UseOf<'_, B> {
        UseOf { alloc: &self.token, start: 0, end: 1, access: Access::ReadWrite }
    }
}

impl<B: Backend> Clone for State<B> {
    fn clone(&self) -> Self {
        State { token: self.token.clone() }
    }
}

impl<B: Backend> std::fmt::Debug for State<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("device", &self.token.device_id())
            .field("id", &self.token.id())
            .finish()
    }
}

assert_impl_all!(State<Host>: Send, Sync, Clone);
