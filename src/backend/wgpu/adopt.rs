//! Buffers of the program's own, taken over without a copy.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::backend::fault::Severity;
use crate::backend::wgpu::memory::{WORD, WgpuMemory};
use crate::backend::wgpu::queue::When;
use crate::backend::wgpu::scope::{self, scoped};
use crate::backend::wgpu::{Machine, Wgpu};
use crate::backend::{Call, Fault};
use crate::buffer::Buffer;
use crate::device::DeviceCore;
use crate::enqueue::Enqueue;
use crate::error::{Error, Result as Outcome};
use crate::kernel::Element;
use crate::memory::adoption::take_back;
use crate::memory::allocation::Allocation;
use crate::order::{Mark, Marks};
use crate::phase::CanWait;
use crate::refused::Refused;
use crate::submit::Route;

/// The names of the calls in errors.
const TAKE: &str = "from_wgpu";
const GIVE: &str = "into_wgpu";

impl<T: Element> Buffer<T, Wgpu> {
    /// Makes a buffer of wgpu's one of the library's, without a copy: what is done with it runs after all that the program
    /// has submitted so far. The device is one that was [opened with](crate::Device::from_parts) the buffer's.
    ///
    /// It is like any other, but that its memory is not the device's: it counts as
    /// [adopted](crate::MemoryReport::adopted) and under no limit, is never moved, and never becomes another buffer. It is
    /// dropped with the last buffer and graph that uses it; [`into_wgpu`](Buffer::into_wgpu) gives it back.
    ///
    /// Until then the program keeps its hands off it. What it submits meanwhile, by a clone of the buffer, comes before or
    /// after what the library does as it happens; and a buffer that is mapped or destroyed when the library submits work on
    /// it loses the device.
    ///
    /// ```no_run
    /// use dacapo::prelude::*;
    /// use dacapo::wgpu::{Wgpu, wgpu};
    ///
    /// # fn main() -> dacapo::Result<()> {
    /// # fn program() -> (wgpu::Device, wgpu::Queue, wgpu::Buffer) { unimplemented!() }
    /// let (device, queue, particles) = program();
    /// let device = Device::<Wgpu>::from_parts(device, queue)?;
    /// let mut stream = device.stream()?;
    /// let mut particles = Buffer::<f32, Wgpu>::from_wgpu(&mut stream, particles)?;
    /// stream.fill(&mut particles, 0.5)?;
    /// // What the program submits from here on finds it filled.
    /// let particles: wgpu::Buffer = particles.into_wgpu()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a buffer that was made without one of the usages `STORAGE`, `COPY_SRC` and `COPY_DST`, or
    /// whose bytes are none or no multiple of 4; [`Error::CastSize`] if they are not a whole number of elements;
    /// [`Error::Driver`] for one that is mapped, that was destroyed, or that is of another device, whose handler of errors
    /// wgpu calls first; [`Error::InCallback`], [`Error::DeviceLost`], and on an [`AnyStream`](crate::AnyStream) that records
    /// [`Error::WrongPhase`]. [`Refused`] holds the buffer.
    pub fn from_wgpu<S>(stream: &mut S, buffer: wgpu::Buffer) -> Result<Self, Refused<wgpu::Buffer>>
    where
        S: Enqueue<Wgpu> + CanWait,
    {
        const { assert!(size_of::<T>() > 0, "an element type without bytes cannot live in device memory") };
        const {
            assert!(align_of::<T>() <= 256, "an element type aligned to more than 256 bytes is not supported")
        };
        let taken = stream.route(TAKE).and_then(|route| {
            let bytes = take(&route, &buffer, size_of::<T>())?;
            Ok((route.core.device.clone(), route.core.slot, bytes))
        });
        let (device, slot, bytes) = match taken {
            Ok(taken) => taken,
            Err(error) => return Err(Refused::new(buffer, error)),
        };
        let memory = WgpuMemory::known_to(&device.backend.machine.me, buffer);
        // One queue: whatever is submitted from now on comes after what was.
        let allocation = Allocation::adopted(&device, slot, memory, bytes, Marks::default());
        Ok(Buffer::new(allocation, bytes / size_of::<T>()))
    }

    /// Gives the buffer back that this one was [made of](Buffer::from_wgpu): what the program submits from here on runs
    /// after everything that was enqueued on it.
    ///
    /// Waits for nothing, unless a stream that used the buffer is behind a host callback: then until what it was given
    /// before that use is submitted. A host callback that fails after this was called is reported by its stream's next
    /// [`sync`](crate::Enqueue::sync) alone.
    ///
    /// # Errors
    /// [`Error::Kept`] says why it cannot be given back: its memory is the device's own, it is one part of a split, or a
    /// graph, an open window or a raw address holds it. [`Error::Tainted`] if any of the bytes was never written by what
    /// should have: whoever gets them could not be told. [`Error::InCallback`], [`Error::DeviceLost`]. [`Refused`] holds
    /// the buffer, as usable as before.
    pub fn into_wgpu(mut self) -> Result<wgpu::Buffer, Refused<Self>> {
        match take_back(&mut self, GIVE, hand_over) {
            Ok(buffer) => Ok(buffer),
            Err(error) => Err(Refused::new(self, error)),
        }
    }
}

/// Whether the buffer can be adopted; returns its size.
fn take(route: &Route<'_, Wgpu>, buffer: &wgpu::Buffer, element: usize) -> Outcome<usize> {
    let machine = &route.core.device.backend.machine;
    let refuse = |reason| Err(Error::Unsupported { operation: TAKE, reason });
    if !buffer.usage().contains(WgpuMemory::USAGE) {
        return refuse(
            "the buffer was made without one of the usages STORAGE, COPY_SRC and COPY_DST, all of which are needed",
        );
    }
    if buffer.size() == 0 || !buffer.size().is_multiple_of(WORD) {
        return refuse("the buffer has no bytes, or a number of them that is no multiple of 4");
    }
    let Ok(bytes) = usize::try_from(buffer.size()) else { return refuse("the host cannot count its bytes") };
    if !bytes.is_multiple_of(element) {
        return Err(Error::CastSize { bytes, element });
    }
    let admitted = admit(machine, buffer);
    machine.check(Call::Allocate);
    machine.poison.check()?;
    admitted.map_err(|fault| machine.poison.absorb(fault))?;
    Ok(bytes)
}

/// Asks wgpu whether work on the buffer can be submitted, by submitting none: a submission of ours must not fail later.
fn admit(machine: &Machine, buffer: &wgpu::Buffer) -> Result<(), Fault> {
    let refused = |message| Err(Fault::new(Call::Allocate, Severity::Call, message));
    if buffer.get_mapped_range(..WORD).is_ok() {
        return refused("the buffer to be adopted is mapped; unmap it first");
    }
    // No mapping starts there.
    let provoked = || buffer.map_async(wgpu::MapMode::Read, 1..WORD, drop);
    if scope::refusal(&machine.device, provoked).is_none() {
        machine.check(Call::Allocate);
        return refused("the buffer to be adopted is of another device, or mapped");
    }
    // The refused mapping is still noted as the one that there is.
    scoped(&machine.device, Call::Allocate, || buffer.unmap()).err();
    scoped(&machine.device, Call::Allocate, || {
        let mut encoder = machine.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        // Clears no byte, but is a use of the buffer.
        encoder.clear_buffer(buffer, 0, Some(0));
        machine.queue.submit([encoder.finish()]);
    })
}

/// Submits everything in `history`, so that what the program submits comes later.
fn hand_over(device: &Arc<DeviceCore<Wgpu>>, memory: &WgpuMemory, history: &Marks) -> Outcome<wgpu::Buffer> {
    let machine = &device.backend.machine;
    for Mark { slot, seq } in history.iter().filter(|mark| !device.passed(*mark)) {
        let shared = &device.slot(slot).queue.shared;
        let mut state = shared.state.lock();
        if state.encoded >= seq {
            shared.flush(machine, &mut state, When::Now);
            continue;
        }
        drop(state);
        shared.block(machine, seq, None).map_err(|fault| machine.poison.absorb(fault))?;
    }
    machine.outbox.settle();
    machine.poison.check()?;
    Ok(memory.buffer.clone())
}
