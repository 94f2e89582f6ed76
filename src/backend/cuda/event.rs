//! Events, which are used again.

#![allow(unsafe_code, reason = "calls of the CUDA driver")]

use parking_lot::Mutex;

use crate::backend::cuda::context::check;
use crate::backend::cuda::sys::{self, CUevent_flags_enum as Flags};
use crate::backend::{Call, Fault};

/// A point in a stream.
pub(crate) struct Event(sys::CUevent);

// SAFETY: the handle names an object of the driver, which any thread may use and destroy.
unsafe impl Send for Event {}

// SAFETY: the driver's calls on one event may be made by several threads at once.
unsafe impl Sync for Event {}

/// Events that nobody uses at the moment, by what they are good for.
#[derive(Default)]
pub(crate) struct Events {
    order: Mutex<Vec<Event>>,
    time: Mutex<Vec<Event>>,
}

/// What an event is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be waited for by a stream.
    Order,
    /// To note the time.
    Time,
}

impl Event {
    fn new(call: Call, purpose: Purpose) -> Result<Self, Fault> {
        let flags = match purpose {
            Purpose::Order => Flags::CU_EVENT_DISABLE_TIMING as u32,
            Purpose::Time => Flags::CU_EVENT_DEFAULT as u32,
        };
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is a place for a handle, and a context is current: every caller has bound it.
        check(call, unsafe { sys::cuEventCreate(&mut raw, flags) })?;
        Ok(Event(raw))
    }

    /// Notes how far `stream` has been filled by now.
    pub(crate) fn record(&self, call: Call, stream: sys::CUstream) -> Result<(), Fault> {
        // SAFETY: the event lives as long as `self`, and the caller's stream as long as its queue.
        check(call, unsafe { sys::cuEventRecord(self.0, stream) })
    }

    /// Makes what follows on `stream` wait for what was recorded last. The event may be recorded anew at once.
    pub(crate) fn hold_back(&self, stream: sys::CUstream) -> Result<(), Fault> {
        // SAFETY: as for `record`; there are no other flags than 0 for an event of our own.
        check(Call::Wait, unsafe { sys::cuStreamWaitEvent(stream, self.0, 0) })
    }

    /// Milliseconds from `earlier` to this one, both of which the device has passed.
    pub(crate) fn since(&self, earlier: &Event) -> Result<f32, Fault> {
        let mut elapsed = 0.0;
        // SAFETY: `elapsed` is a place for a number; both events live as long as their references.
        check(Call::Stamp, unsafe { sys::cuEventElapsedTime_v2(&mut elapsed, earlier.0, self.0) })?;
        Ok(elapsed)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the handle came from `cuEventCreate` and is destroyed here only. The driver keeps what is still needed
        // of an event that is pending; what it refuses is leaked.
        let _ = unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}

impl Events {
    /// An event for `purpose`; the context is bound.
    pub(crate) fn take(&self, call: Call, purpose: Purpose) -> Result<Event, Fault> {
        let free = self.of(purpose).lock().pop();
        free.map_or_else(|| Event::new(call, purpose), Ok)
    }

    pub(crate) fn give(&self, purpose: Purpose, event: Event) {
        self.of(purpose).lock().push(event);
    }

    /// Destroys them all; the context is bound.
    pub(crate) fn clear(&self) {
        self.order.lock().clear();
        self.time.lock().clear();
    }

    /// Forgets them all, where nothing may be asked of the driver.
    pub(crate) fn leak(&self) {
        for events in [&self.order, &self.time] {
            std::mem::take(&mut *events.lock()).into_iter().for_each(std::mem::forget);
        }
    }

    fn of(&self, purpose: Purpose) -> &Mutex<Vec<Event>> {
        match purpose {
            Purpose::Order => &self.order,
            Purpose::Time => &self.time,
        }
    }
}
