//! Other libraries of the process: their streams, and their memory.

#![forbid(unsafe_code)]

use crate::backend::Backend;
use crate::error::Result;
use crate::order::Mark;
use crate::submit::Route;

/// A backend whose device other libraries of the process use too, with streams and memory of their own.
#[diagnostic::on_unimplemented(
    message = "no other library has streams on the backend `{Self}`",
    label = "a backend without streams of others",
    note = "CUDA is one that has them: `dacapo::cuda::Cuda`, whose neighbours' streams are `cudarc::driver::CudaStream`s"
)]
pub trait Guest: sealed::Guest {}

pub(crate) mod sealed {
    use super::*;

    /// What such a driver can do.
    #[diagnostic::on_unimplemented(
        message = "no other library has streams on the backend `{Self}`",
        label = "a backend without streams of others",
        note = "CUDA is one that has them: `dacapo::cuda::Cuda`, whose neighbours' streams are `cudarc::driver::CudaStream`s"
    )]
    pub trait Guest: Backend {
        /// A stream of another library's.
        type Stream: ?Sized;

        /// Makes the `seq`-th operation of `queue` a wait for what `theirs` has been given. On an error there is none.
        fn after(
            &self,
            queue: &Self::Queue,
            seq: u64,
            operation: &'static str,
            theirs: &Self::Stream,
        ) -> Result<()>;

        /// Makes what `theirs` is given from now on wait for what `queue` has been given. On an error nothing changed.
        fn before(&self, queue: &Self::Queue, operation: &'static str, theirs: &Self::Stream) -> Result<()>;
    }
}

/// Orders what the stream enqueues from now on after what `theirs` has been given.
pub(crate) fn after<B: Guest>(route: &mut Route<'_, B>, theirs: &B::Stream) -> Result<()> {
    join(route, |backend, queue, seq| backend.after(queue, seq, "after", theirs)).map(drop)
}

/// Orders what `theirs` is given from now on after what the stream has enqueued.
pub(crate) fn before<B: Guest>(route: &mut Route<'_, B>, theirs: &B::Stream) -> Result<()> {
    let core = &*route.core;
    core.device.backend.before(&core.device.slot(core.slot).queue, "before", theirs)
}

/// Enqueues what `wait` makes the queue wait for, as an operation of the stream: it uses no bytes, but whoever waits for the
/// stream, or for what it does next, waits for it too.
///
/// # Errors
/// What `wait` says; nothing was enqueued.
pub(crate) fn join<B: Backend>(
    route: &mut Route<'_, B>,
    wait: impl FnOnce(&B, &B::Queue, u64) -> Result<()>,
) -> Result<Mark> {
    let core = &mut *route.core;
    let (device, slot) = (core.device.clone(), core.slot);
    let queue = &device.slot(slot).queue;
    device.backend.throttle(queue);
    let mut lane = device.lane(slot);
    device.poison.check()?;
    let mark = Mark { slot, seq: lane.seq + 1 };
    wait(&device.backend, queue, mark.seq)?;
    (lane.seq, core.last) = (mark.seq, mark.seq);
    Ok(mark)
}
