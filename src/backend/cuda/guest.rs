//! Streams of other libraries in the device's context.
//!
//! Nothing is enqueued on them but marks and waits, and nothing at all while they capture: a mark made in a capture would
//! draw whoever waits for it into that capture.

#![allow(unsafe_code, reason = "calls of the CUDA driver")]

use cudarc::driver::CudaStream;

use crate::backend::cuda::beside::holding_up;
use crate::backend::cuda::context::check;
use crate::backend::cuda::event::Purpose;
use crate::backend::cuda::queue::{CudaQueue, Shared};
use crate::backend::cuda::sys;
use crate::backend::cuda::{Cuda, Machine};
use crate::backend::{Call, Fault};
use crate::error::{Error, Result as Outcome};
use crate::guest::{Guest, sealed};

impl Guest for Cuda {}

#[diagnostic::do_not_recommend]
impl sealed::Guest for Cuda {
    type Stream = CudaStream;

    fn after(
        &self,
        queue: &CudaQueue,
        seq: u64,
        operation: &'static str,
        theirs: &CudaStream,
    ) -> Outcome<()> {
        let _bound = bind(&self.machine)?;
        let _holding = holding_up();
        self.machine.follow(&queue.shared, operation, theirs)?;
        queue.shared.submit(&self.machine, seq);
        Ok(())
    }

    fn before(&self, queue: &CudaQueue, operation: &'static str, theirs: &CudaStream) -> Outcome<()> {
        let _bound = bind(&self.machine)?;
        self.machine.look_at(operation, theirs)?;
        self.machine.lead(&queue.shared, theirs)
    }
}

impl Machine {
    /// Whether nothing speaks against an order with `theirs`; the context is bound.
    pub(crate) fn look_at(&self, operation: &'static str, theirs: &CudaStream) -> Outcome<()> {
        if theirs.context().cu_ctx() != self.context.raw() {
            return Err(Error::WrongContext { operation, object: "stream" });
        }
        let captures = captures(theirs.cu_stream()).map_err(|fault| self.poison.absorb(fault))?;
        if captures { Err(Error::TheirCapture { operation }) } else { Ok(()) }
    }

    /// Makes what follows on `queue` wait for what `theirs` has been given; the context is bound.
    pub(crate) fn follow(&self, queue: &Shared, operation: &'static str, theirs: &CudaStream) -> Outcome<()> {
        self.look_at(operation, theirs)?;
        let absorb = |fault| self.poison.absorb(fault);
        // What waits may do so for long; who waits for what comes before must not.
        queue.publish().map_err(absorb)?;
        let event = self.events.take(Call::Wait, Purpose::Order).map_err(absorb)?;
        event.record(Call::Wait, theirs.cu_stream()).map_err(absorb)?;
        // Where a capture began in between, the event may be a part of it, and is dropped.
        self.look_at(operation, theirs)?;
        event.hold_back(queue.stream()).map_err(absorb)?;
        self.events.give(Purpose::Order, event);
        Ok(())
    }

    /// Makes what follows on `theirs`, which was [looked at](Machine::look_at), wait for what `queue` has been given; the
    /// context is bound.
    pub(crate) fn lead(&self, queue: &Shared, theirs: &CudaStream) -> Outcome<()> {
        let absorb = |fault| self.poison.absorb(fault);
        let event = self.events.take(Call::Wait, Purpose::Order).map_err(absorb)?;
        let recorded = event.record(Call::Wait, queue.stream());
        let outcome = recorded.and_then(|()| event.hold_back(theirs.cu_stream()));
        self.events.give(Purpose::Order, event);
        outcome.map_err(absorb)
    }
}

/// The context, bound for calls that look at somebody's capture or run beside it.
fn bind(machine: &Machine) -> Outcome<super::context::Relaxed> {
    machine.context.relaxed().map_err(|fault| machine.poison.absorb(fault))
}

/// Whether something enqueued on the stream would become part of a capture, or break one; the context is bound.
pub(crate) fn captures(stream: sys::CUstream) -> Result<bool, Fault> {
    // A number, which need not be one that cudarc knows.
    let mut status = u32::MAX;
    // SAFETY: `status` is a place for a C enum, which is an `unsigned int`; the stream lives, since every caller has a
    // reference to its owner.
    match unsafe { sys::cuStreamIsCapturing(stream, std::ptr::from_mut(&mut status).cast()) } {
        // The default stream, which waits for a stream that captures.
        code if code == sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT => Ok(true),
        code => check(Call::Wait, code)
            .map(|()| status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE as u32),
    }
}
