//! What the device gives the host, on its way: the bytes of reads, and the news of what is done.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Instant;

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::backend::command::Stamp;
use crate::backend::fault::Severity;
use crate::backend::wgpu::Machine;
use crate::backend::wgpu::memory::{Place, WORD};
use crate::backend::wgpu::notice::Notice;
use crate::backend::wgpu::queue::Shared;
use crate::backend::wgpu::scope::{lost, scoped};
use crate::backend::wgpu::stamp::Reading;
use crate::backend::{Call, Fault};
use crate::callback::OnDevice;
use crate::error::Error;
use crate::layout::Pitch;
use crate::readback::{Readback, wake};

/// Memory that the device writes and the host reads, free to be used again.
#[derive(Default)]
pub(crate) struct Pads {
    free: Mutex<Vec<wgpu::Buffer>>,
}

/// Bytes on their way to the host.
pub(crate) struct Flight {
    into: Option<Arc<Readback>>,
    pub(crate) pad: wgpu::Buffer,
    /// Where the first byte is in the pad.
    skip: usize,
    len: usize,
    pitch: Option<Pitch>,
}

/// What wgpu told us, in its order.
#[derive(Default)]
pub(crate) struct Arrivals {
    any: AtomicBool,
    inbox: Mutex<VecDeque<Arrival>>,
    /// Held by whoever lands what came: one at a time, so that nothing is done before what comes before it has landed.
    landing: Mutex<()>,
}

/// One piece of news.
pub(crate) enum Arrival {
    /// The bytes of a read are there, or will never be.
    Read(Flight, Result<(), wgpu::BufferAsyncError>),
    /// A time of the device's is there, or will never be.
    Ticks(Reading, Result<(), wgpu::BufferAsyncError>),
    /// A time of the host's, where the device has no clock.
    Time(Arc<Stamp>, Instant),
    /// All operations of a queue up to this one are done.
    Done(Arc<Shared>, u64),
}

type Wakers = SmallVec<[Waker; 2]>;

/// The smallest pad.
const LEAST: u64 = 4 << 10;
/// So many bytes of free pads are kept.
const KEPT: u64 = 32 << 20;

impl Pads {
    /// Room for the words that hold `place`.
    pub(crate) fn take(&self, machine: &Machine, bytes: u64) -> Result<wgpu::Buffer, Fault> {
        let size = bytes.max(LEAST).checked_next_power_of_two().unwrap_or(bytes);
        let size = size.min(machine.limits.max_buffer_size).max(bytes);
        let mut free = self.free.lock();
        if let Some(index) = free.iter().position(|pad| pad.size() == size) {
            return Ok(free.swap_remove(index));
        }
        drop(free);
        let descriptor = wgpu::BufferDescriptor {
            label: Some("dacapo read"),
            size,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        };
        machine.create(Call::Read, |device| device.create_buffer(&descriptor))
    }

    fn give(&self, pad: wgpu::Buffer) {
        let mut free = self.free.lock();
        if free.iter().map(wgpu::Buffer::size).sum::<u64>() + pad.size() <= KEPT {
            free.push(pad);
        }
    }
}

impl Flight {
    /// A read of `from`, with the range of words to be copied to the start of its pad.
    pub(crate) fn new(
        machine: &Machine,
        from: &Place<'_>,
        into: Arc<Readback>,
        pitch: Option<Pitch>,
    ) -> Result<(Self, u64, u64), Fault> {
        let first = from.at - from.at % WORD;
        let words = from.end().next_multiple_of(WORD) - first;
        let pad = machine.pads.take(machine, words)?;
        let (skip, len) = ((from.at - first) as usize, from.len as usize);
        Ok((Flight { into: Some(into), pad, skip, len, pitch }, first, words))
    }

    /// Asks wgpu for the bytes, once the copy to the pad was submitted.
    pub(crate) fn request(self, machine: &Arc<Machine>, notice: Arc<Notice>) {
        let (pad, machine) = (self.pad.clone(), Arc::downgrade(machine));
        pad.map_async(wgpu::MapMode::Read, .., move |outcome| {
            if let Some(machine) = machine.upgrade() {
                machine.arrivals.push(Arrival::Read(self, outcome));
            }
            // After that, so that nothing counts as done before.
            drop(notice);
        });
    }

    /// Hands the bytes over. Whoever waits for them is to be woken under no lock.
    fn land(mut self, machine: &Machine, outcome: Result<(), wgpu::BufferAsyncError>) -> Option<Waker> {
        let into = self.into.take()?;
        let mut room = into.take_room();
        let copied = match outcome {
            // What was mapped may be what nobody wrote, since the submission that was to was refused.
            Ok(()) if machine.poison.is_set() => Err(lost(Call::Read)),
            Ok(()) => self.copy(room.bytes_mut()),
            Err(error) => Err(Fault::new(Call::Read, Severity::Call, error.to_string())),
        };
        // A read that is refused, or whose bytes are gone, is how a lost device shows.
        let outcome = copied.map_err(|fault| {
            machine.check(Call::Read);
            machine.poison.error().unwrap_or_else(|| machine.poison.absorb(fault))
        });
        match outcome {
            Ok(()) if scoped(&machine.device, Call::Read, || self.pad.unmap()).is_ok() => {
                machine.pads.give(self.pad.clone());
            }
            _ => {}
        }
        into.settle(room, outcome)
    }

    fn copy(&self, to: &mut [u8]) -> Result<(), Fault> {
        let end = (self.skip + self.len).next_multiple_of(WORD as usize) as u64;
        let view = self.pad.get_mapped_range(..end);
        let view = view.map_err(|error| Fault::new(Call::Read, Severity::Call, error.to_string()))?;
        let short =
            || Fault::new(Call::Read, Severity::Call, "a read of another length than its destination");
        let from = view.get(self.skip..self.skip + self.len).ok_or_else(short)?;
        match self.pitch {
            None if from.len() == to.len() => to.copy_from_slice(from),
            None => return Err(short()),
            Some(pitch) => {
                for (row, to) in pitch.ranges(0).zip(to.chunks_exact_mut(pitch.row)) {
                    to.copy_from_slice(from.get(row).ok_or_else(short)?);
                }
            }
        }
        Ok(())
    }

    /// Where the bytes are to land.
    pub(crate) fn into(&self) -> Option<Arc<Readback>> {
        self.into.clone()
    }

    /// Nothing will come.
    pub(crate) fn fail(mut self, error: &Error) {
        self.into.take().into_iter().for_each(|into| into.fail(error.clone()));
    }
}

impl Drop for Flight {
    /// wgpu may drop a callback that it never calls.
    fn drop(&mut self) {
        let gone = Error::Unsupported { operation: "read", reason: "the device gave up its queue" };
        self.into.take().into_iter().for_each(|into| into.fail(gone.clone()));
    }
}

impl Arrivals {
    /// Called by wgpu, under whatever locks its caller holds: lands nothing.
    pub(crate) fn push(&self, arrival: Arrival) {
        self.inbox.lock().push_back(arrival);
        // Release pairs with `land`, which else might not look.
        self.any.store(true, Ordering::Release);
    }

    /// Lands all that came. When this returns, it has landed, whoever did it. To be called with no lock held.
    pub(crate) fn land(&self, machine: &Machine) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut wakers = Wakers::new();
        let landing = self.landing.lock();
        loop {
            let mut inbox = self.inbox.lock();
            let Some(arrival) = inbox.pop_front() else {
                self.any.store(false, Ordering::Relaxed);
                break;
            };
            drop(inbox);
            match arrival {
                Arrival::Read(flight, outcome) => wakers.extend(flight.land(machine, outcome)),
                Arrival::Ticks(reading, outcome) => reading.land(machine, outcome),
                Arrival::Time(at, when) => *at.lock() = Some(Ok(when)),
                Arrival::Done(queue, seq) => queue.complete(seq),
            }
        }
        drop(landing);
        // Wakers are the user's code.
        let _on_device = OnDevice::enter();
        wakers.into_iter().for_each(|waker| wake(Some(waker)));
    }
}
