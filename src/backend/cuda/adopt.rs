//! Memory and functions of `cudarc`'s, taken over without a copy.

#![allow(unsafe_code, reason = "calls of the CUDA driver")]

use std::any::Any;
use std::mem::ManuallyDrop;

use bytemuck::Pod;
use cudarc::driver::{CudaFunction, CudaSlice, DevicePtr, DevicePtrMut, SyncOnDrop};

use crate::backend::cuda::beside::holding_up;
use crate::backend::cuda::code::CudaCode;
use crate::backend::cuda::context::check;
use crate::backend::cuda::guest::captures;
use crate::backend::cuda::memory::CudaMemory;
use crate::backend::cuda::sys;
use crate::backend::cuda::{Cuda, Machine};
use crate::backend::{Call, Fault};
use crate::buffer::Buffer;
use crate::callback;
use crate::device::{Device, DeviceCore};
use crate::enqueue::Enqueue;
use crate::error::{Error, Result as Outcome};
use crate::guest;
use crate::kernel::{Element, Kernel, Program, Signature};
use crate::memory::adoption::take_back;
use crate::memory::allocation::Allocation;
use crate::order::{Mark, Marks};
use crate::phase::CanWait;
use crate::refused::Refused;
use crate::submit::Route;

/// The names of the calls in errors.
const TAKE: &str = "from_cudarc";
const GIVE: &str = "into_cudarc";

/// Memory of `cudarc`'s, whatever its elements are.
pub(crate) trait Lent: Any + Send + Sync {
    /// The stream that it is freed on.
    fn stream(&self) -> sys::CUstream;
}

impl<T: 'static> Lent for CudaSlice<T> {
    fn stream(&self) -> sys::CUstream {
        CudaSlice::stream(self).cu_stream()
    }
}

impl<T: Element> Buffer<T, Cuda> {
    /// Makes a slice of `cudarc`'s a buffer, without a copy: what `stream` and, by the bytes that it uses, every other one
    /// does with it runs after everything that the slice's own stream has been given, and after its last uses elsewhere.
    ///
    /// The buffer is like any other, but that its memory is not the device's: it counts as
    /// [adopted](crate::MemoryReport::adopted) and under no limit, is never moved, and never becomes another buffer. Once
    /// the buffer and all graphs that use it are dropped and the device is past it, the slice is dropped, on a thread of the
    /// device's, at a time when its stream captures nothing. [`into_cudarc`](Buffer::into_cudarc) gives it back, which is
    /// for programs that begin captures on that very stream: one that begins in the moment of the drop would be broken.
    ///
    /// The bytes are what they are: of a slice that nothing has written, they are whatever was there.
    ///
    /// # Errors
    /// [`Error::WrongContext`] for a slice of another context than the device's, [`Error::TheirCapture`] if the slice's
    /// stream captures or a capture that is under way has used the slice, [`Error::Unsupported`] for one that starts at no
    /// multiple of 256 bytes; what the driver says, [`Error::InCallback`], [`Error::DeviceLost`], and on an
    /// [`AnyStream`](crate::AnyStream) that records [`Error::WrongPhase`]. [`Refused`] holds the slice.
    pub fn from_cudarc<S>(stream: &mut S, mut slice: CudaSlice<T>) -> Result<Self, Refused<CudaSlice<T>>>
    where
        S: Enqueue<Cuda> + CanWait,
    {
        const { assert!(size_of::<T>() > 0, "an element type without bytes cannot live in device memory") };
        const {
            assert!(align_of::<T>() <= 256, "an element type aligned to more than 256 bytes is not supported")
        };
        let outcome = stream.route(TAKE).and_then(|mut route| {
            let (start, mark) = take(&mut route, &mut slice)?;
            Ok((route.core.device.clone(), route.core.slot, start, mark))
        });
        let (device, slot, start, mark) = match outcome {
            Ok(taken) => taken,
            Err(error) => return Err(Refused::new(slice, error)),
        };
        let (len, bytes) = (slice.len(), slice.num_bytes());
        let memory = CudaMemory::adopted(&device.backend.machine, start, Box::new(slice));
        let mut history = Marks::default();
        history.add(mark);
        Ok(Buffer::new(Allocation::adopted(&device, slot, memory, bytes, history), len))
    }

    /// Gives the slice back that the buffer was [made of](Buffer::from_cudarc): what its stream is given from here on, and
    /// what `cudarc` does with it on others, runs after everything that was enqueued on the buffer. Waits for nothing: what
    /// is still in flight, and fails later, is reported by its stream's next [`sync`](crate::Enqueue::sync) alone.
    ///
    /// # Errors
    /// [`Error::Kept`] says why the buffer cannot be given back: its memory is the device's own, it is one part of a split,
    /// or a graph, an open window or a raw address holds it. [`Error::TheirCapture`] if the slice's stream captures.
    /// [`Error::Tainted`] if any of the bytes was never written by what should have: whoever gets them could not be told. What
    /// the driver says, [`Error::InCallback`], [`Error::DeviceLost`]. [`Refused`] holds the buffer, as usable as before.
    pub fn into_cudarc(mut self) -> Result<CudaSlice<T>, Refused<Self>> {
        let taken = take_back(&mut self, GIVE, |device, memory, history| {
            memory.reclaim(|slice| hand_over(device, history, slice))
        });
        match taken {
            Ok(slice) => Ok(slice),
            Err(error) => Err(Refused::new(self, error)),
        }
    }
}

impl<S: Signature> Kernel<S, Cuda> {
    /// Makes a function that `cudarc` has loaded a kernel of `device`. Its name, [block](Program::block),
    /// [shared memory](Program::shared_memory) and [checks](Program::check) are those of `program`, of which no source is used.
    /// The function's module stays loaded for as long as the kernel or a graph that launches it lives.
    ///
    /// # Safety
    /// As for [`Program::ptx`], with the program as it is at this call; and the function's module was loaded in the context of
    /// `device`.
    ///
    /// # Errors
    /// [`Error::Driver`], if the function has other parameters than the signature, by their number or sizes, or cannot have
    /// so many threads or so much shared memory; [`Error::InCallback`] and [`Error::DeviceLost`].
    pub unsafe fn from_function(
        device: &Device<Cuda>,
        function: CudaFunction,
        program: &Program<S>,
    ) -> Outcome<Self> {
        callback::refuse("from_function")?;
        let core = &device.core;
        core.poison.check()?;
        let sources = &program.sources;
        let code = CudaCode::adopt(&core.backend.machine, function, sources)
            .map_err(|fault| core.poison.absorb(fault))?;
        Ok(Kernel::new(sources.loaded::<S, Cuda>(core, code)).with_checks(&sources.checks))
    }
}

/// Orders the stream after all uses of `slice`; returns where that is, and the stream's operation that waits.
fn take<T: Pod>(route: &mut Route<'_, Cuda>, slice: &mut CudaSlice<T>) -> Outcome<(sys::CUdeviceptr, Mark)> {
    let device = route.core.device.clone();
    let machine = &device.backend.machine;
    let absorb = |fault| machine.poison.absorb(fault);
    if slice.context().cu_ctx() != machine.context.raw() {
        return Err(Error::WrongContext { operation: TAKE, object: "slice" });
    }
    let _relaxed = machine.context.relaxed().map_err(absorb)?;
    let (start, events) = uses(machine, slice)?;
    if !start.is_multiple_of(device.limits.alignment as u64) {
        let reason = "the slice starts at no multiple of 256 bytes, as every buffer does";
        return Err(Error::Unsupported { operation: TAKE, reason });
    }
    let theirs = slice.stream().clone();
    let mark = guest::join(route, |backend, queue, seq| {
        let queue = &queue.shared;
        let _holding = holding_up();
        backend.machine.follow(queue, TAKE, &theirs)?;
        for event in events.into_iter().flatten() {
            // In no capture, as `uses` found, and nobody else can record it.
            hold_back(queue.stream(), event).map_err(absorb)?;
        }
        queue.submit(machine, seq);
        Ok(())
    })?;
    Ok((start, mark))
}

/// Where the slice is, and the events of its last uses on all streams, none of which is a part of a capture. The context is
/// bound.
fn uses<T>(
    machine: &Machine,
    slice: &mut CudaSlice<T>,
) -> Outcome<(sys::CUdeviceptr, [Option<sys::CUevent>; 2])> {
    let absorb = |fault| machine.poison.absorb(fault);
    // `cudarc` shows the events only to a stream, which it may make wait for them. One that is good for nothing else: were
    // it drawn into a capture, nothing would come after it.
    let probe = Probe::new().map_err(absorb)?;
    // SAFETY: a stream of the current context, which is the slice's, and outlives the wrapper: that is dropped here.
    let stream = unsafe { slice.context().wrap_borrowed_stream(probe.0) };
    let (start, read) = slice.device_ptr(&stream);
    let read = event_of(read);
    let (_, written) = slice.device_ptr_mut(&stream);
    let events = [read, event_of(written)];
    for event in events.into_iter().flatten() {
        hold_back(probe.0, event).map_err(absorb)?;
    }
    if captures(probe.0).map_err(absorb)? {
        return Err(Error::TheirCapture { operation: TAKE });
    }
    Ok((start, events))
}

/// Makes what follows on `stream` wait for an event of a slice that the caller has; the context is bound.
fn hold_back(stream: sys::CUstream, event: sys::CUevent) -> Result<(), Fault> {
    // SAFETY: the event lives as long as the slice, the stream as long as its owner, whom every caller has.
    check(Call::Wait, unsafe { sys::cuStreamWaitEvent(stream, event, 0) })
}

/// The event that would be recorded when `guard` is dropped, which this does not do.
fn event_of(guard: SyncOnDrop<'_>) -> Option<sys::CUevent> {
    match &*ManuallyDrop::new(guard) {
        SyncOnDrop::Record(Some((event, _))) => Some(event.cu_event()),
        SyncOnDrop::Record(None) | SyncOnDrop::Sync(_) => None,
    }
}

/// A stream on which nothing runs.
struct Probe(sys::CUstream);

impl Probe {
    /// The context is bound.
    fn new() -> Result<Self, Fault> {
        let mut stream = std::ptr::null_mut();
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: `stream` is a place for a handle, and the context is bound.
        check(Call::Wait, unsafe { sys::cuStreamCreate(&mut stream, flags) })?;
        Ok(Probe(stream))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // SAFETY: the stream came from `cuStreamCreate`, and this is its only owner. A refusal leaks it.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.0) };
    }
}

/// Orders what `cudarc` does with the slice after everything in `history`.
fn hand_over<T>(device: &DeviceCore<Cuda>, history: &Marks, slice: &mut CudaSlice<T>) -> Outcome<()> {
    let machine = &device.backend.machine;
    let absorb = |fault| machine.poison.absorb(fault);
    let _relaxed = machine.context.relaxed().map_err(absorb)?;
    let theirs = slice.stream().clone();
    machine.look_at(GIVE, &theirs)?;
    for mark in history.iter().filter(|mark| !device.passed(*mark)) {
        machine.lead(&device.slot(mark.slot).queue.shared, &theirs)?;
    }
    // Other streams of `cudarc`'s wait for the slice's own event, not for its stream.
    let (_, written) = slice.device_ptr_mut(&theirs);
    let Some(event) = event_of(written) else { return Ok(()) };
    // SAFETY: the event lives as long as the slice, the stream as long as `theirs`; both are of the current context.
    check(Call::Wait, unsafe { sys::cuEventRecord(event, theirs.cu_stream()) }).map_err(absorb)
}
