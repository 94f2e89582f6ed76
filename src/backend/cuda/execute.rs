//! Submitting one command.

#![allow(unsafe_code, reason = "calls of the CUDA driver")]

use std::ffi::c_void;
use std::hint::cold_path;
use std::sync::Arc;

use crate::backend::command::{Work, fits};
use crate::backend::cuda::beside::holding_up;
use crate::backend::cuda::code::{Function, Params};
use crate::backend::cuda::context::check;
use crate::backend::cuda::fill::{Step, THREADS};
use crate::backend::cuda::landing::{Flight, Load};
use crate::backend::cuda::late::{self, Admission};
use crate::backend::cuda::memory::address;
use crate::backend::cuda::queue::{CudaQueue, Shared};
use crate::backend::cuda::sys;
use crate::backend::cuda::{Cuda, Machine, callback, ferry};
use crate::backend::fault::Severity;
use crate::backend::{AtOnce, Call, Command, CommandRef, Fault, Region, Submitter, outcome};
use crate::error::Error;
use crate::layout::Pitch;
use crate::memory::staging::{Room, Staged};
use crate::taint;

/// Submits a command, unless what it reads was never written: then its output was not either.
pub(crate) fn submit(
    queue: &CudaQueue,
    seq: u64,
    by: &Submitter,
    command: &mut Command<Cuda>,
) -> Result<(), Fault> {
    let CudaQueue { shared, machine, .. } = queue;
    let _bound = machine.context.bind()?;
    let _holding = calls_the_host(command).then(holding_up);
    let logs = machine.late.is_pending() || late::may_fail(command.view());
    match admit(machine, command.view(), logs) {
        Err(cause) => {
            cold_path();
            outcome::skip(command.view(), &cause);
        }
        Ok(admission) => {
            let enqueued = enqueue(machine, shared, seq, by, command, admission.as_ref());
            match (&enqueued, &admission) {
                (Ok(()), None) => settle(command.view()),
                (Err(_), Some(admission)) => machine.late.cancel(admission),
                _ => {}
            }
            enqueued?;
        }
    }
    shared.submit(machine, seq);
    Ok(())
}

/// Whether it may hold its stream up for as long as the user likes.
fn calls_the_host(command: &Command<Cuda>) -> bool {
    match &command.job.0 {
        Work::HostCall { .. } => true,
        Work::Raw { section } => section.calls(),
        _ => false,
    }
}

/// Launches on clean bytes; returns what kept it from being enqueued.
pub(crate) fn launch_at_once(queue: &CudaQueue, seq: u64, of: AtOnce<'_, Cuda>) -> Option<Fault> {
    let CudaQueue { shared, machine, .. } = queue;
    let AtOnce { code, blocks, block, places, scalars } = of;
    let _bound = match machine.context.bind() {
        Ok(bound) => bound,
        Err(fault) => return Some(fault),
    };
    let enqueued = counted(*blocks).and_then(|blocks| {
        code.with_places(places, scalars, |params| {
            launch(Call::Launch, shared.stream(), code.function, blocks, *block, params)
        })
    });
    if let Err(fault) = enqueued {
        return Some(fault);
    }
    shared.submit(machine, seq);
    None
}

/// Whether the command may run, by the taint of what it reads.
#[inline]
fn admit(
    machine: &Machine,
    command: CommandRef<'_, Cuda>,
    logs: bool,
) -> Result<Option<Admission>, Arc<Error>> {
    if logs {
        cold_path();
        return machine.late.admit(command).map(Some);
    }
    // A move takes the taint of its source along, whatever that is.
    if taint::is_clean(command) || matches!(command.job.0, Work::Move) {
        return Ok(None);
    }
    cold_path();
    taint::admit(command).map_or(Ok(None), Err)
}

/// What the command wrote is what it wrote.
fn settle(command: CommandRef<'_, Cuda>) {
    if taint::is_clean(command) {
        return;
    }
    cold_path();
    taint::settle_moved(command);
}

/// Remembers that a command failed, in the place of the `seq`-th operation.
pub(crate) fn submit_failure(queue: &CudaQueue, seq: u64, command: CommandRef<'_, Cuda>, cause: &Arc<Error>) {
    let CudaQueue { shared, machine, .. } = queue;
    outcome::fail(command, cause);
    match machine.context.bind() {
        Ok(_bound) => shared.submit(machine, seq),
        Err(fault) => machine.lose(&fault),
    }
}

#[inline]
fn enqueue(
    machine: &Arc<Machine>,
    queue: &Shared,
    seq: u64,
    by: &Submitter,
    command: &mut Command<Cuda>,
    admission: Option<&Admission>,
) -> Result<(), Fault> {
    let (args, stream, call) = (&command.args, queue.stream(), command.job.call());
    match (&command.job.0, args.regions.as_slice()) {
        (Work::Launch { kernel, extent }, _) => {
            let (blocks, block) = (counted(extent.blocks())?, extent.block());
            kernel.code.with_params(command.view().args, |params| {
                launch(call, stream, kernel.code.function, blocks, block, params)
            })
        }
        (Work::Copy | Work::Move, [from, to]) => copy(call, stream, from, to),
        (Work::Fill, [to]) => {
            let (to, len) = address(call, to)?;
            machine.fill.steps(to, len, &args.scalars, |step| fill(call, stream, step))
        }
        (Work::Write { bytes, pitch }, [to]) => write(machine, queue, seq, to, *pitch, bytes),
        (Work::Read { into, pitch }, [from]) => {
            let mut room = into.take_room();
            match read(machine, queue, seq, from, *pitch, &mut room) {
                Ok(()) => {
                    let verdict = admission.map(|admission| admission.verdict.clone());
                    let load = Load::Read { into: into.clone(), room, verdict };
                    queue.landings.push(Flight { seq, load });
                    machine.watch.hurry();
                    Ok(())
                }
                Err(fault) => {
                    into.put_room(room);
                    Err(fault)
                }
            }
        }
        (Work::HostCall { .. }, _) => callback::submit(machine, queue, by, command, admission),
        (Work::Raw { section }, _) => section.launch(queue),
        (Work::Stamp { at }, _) => {
            let event = queue.stamp(machine)?;
            queue.landings.push(Flight { seq, load: Load::Stamp { at: at.clone(), event } });
            Ok(())
        }
        (Work::LaunchIndirect { .. }, _) => {
            Err(Fault::new(call, Severity::Call, "a launch that counts its blocks when it runs"))
        }
        (Work::Copy | Work::Move | Work::Fill | Work::Write { .. } | Work::Read { .. }, _) => {
            Err(Fault::new(call, Severity::Call, "an operation without its memory"))
        }
    }
}

/// So many blocks, in the driver's numbers.
#[inline]
pub(crate) fn counted([x, y, z]: [u64; 3]) -> Result<[u32; 3], Fault> {
    if (x | y | z) > u64::from(u32::MAX) {
        cold_path();
        return Err(Fault::new(Call::Launch, Severity::Call, "more blocks than the driver can count"));
    }
    Ok([x as u32, y as u32, z as u32])
}

fn launch(
    call: Call,
    stream: sys::CUstream,
    Function { raw, shared }: Function,
    [x, y, z]: [u32; 3],
    [bx, by, bz]: [u32; 3],
    (places, extra): Params,
) -> Result<(), Fault> {
    // SAFETY: the function is one of a module that lives until the launch has passed. There is a place for each of its
    // parameters, or a block of them, laid out as the driver said they are, which it copies before it returns. What the
    // kernel does with them, and with the shared memory, is what whoever loaded it answers for; that nothing else uses the
    // memory at the same time is the core's order.
    check(call, unsafe { sys::cuLaunchKernel(raw, x, y, z, bx, by, bz, shared, stream, places, extra) })
}

/// Says where a block of parameters is, in the driver's way.
pub(crate) fn extra(params: &[u8], size: &mut usize) -> [*mut c_void; 5] {
    let name = |name: u32| std::ptr::without_provenance_mut::<c_void>(name as usize);
    [
        name(sys::CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT),
        params.as_ptr().cast_mut().cast(),
        name(sys::CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT),
        std::ptr::from_mut(size).cast(),
        name(sys::CU_LAUNCH_PARAM_END_AS_INT),
    ]
}

fn copy(call: Call, stream: sys::CUstream, from: &Region<Cuda>, to: &Region<Cuda>) -> Result<(), Fault> {
    let ((from, len), (to, room)) = (address(call, from)?, address(call, to)?);
    if len != room {
        return Err(Fault::new(call, Severity::Call, "a copy between ranges of two lengths"));
    }
    if len == 0 {
        return Ok(());
    }
    // SAFETY: `address` checked both ranges against memory that lives until the copy has passed.
    check(call, unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, len, stream) })
}

fn fill(call: Call, stream: sys::CUstream, step: Step<'_>) -> Result<(), Fault> {
    match step {
        Step::Launch { function, blocks, params } => {
            let mut size = params.len();
            let mut extra = extra(params, &mut size);
            let params = (std::ptr::null_mut(), extra.as_mut_ptr());
            launch(call, stream, function, [blocks, 1, 1], [THREADS, 1, 1], params)
        }
        Step::Set { to, value, width, count } => {
            let code = match width {
                // SAFETY: `address` checked `count` elements at `to`, in memory that lives until the fill has passed.
                1 => unsafe { sys::cuMemsetD8Async(to, value as u8, count, stream) },
                // SAFETY: as above, and `to` is a multiple of 2.
                2 => unsafe { sys::cuMemsetD16Async(to, value as u16, count, stream) },
                // SAFETY: as above, and `to` is a multiple of 4.
                _ => unsafe { sys::cuMemsetD32Async(to, value, count, stream) },
            };
            check(call, code)
        }
    }
}

fn write(
    machine: &Arc<Machine>,
    queue: &Shared,
    seq: u64,
    to: &Region<Cuda>,
    pitch: Option<Pitch>,
    bytes: &Arc<Staged>,
) -> Result<(), Fault> {
    let (to, len) = address(Call::Write, to)?;
    let source = bytes.bytes();
    fits(Call::Write, pitch, len, source.len())?;
    if !bytes.is_pinned() && ferry::carries(source.len()) {
        // SAFETY: `address` checked the range, `fits` that there are as many bytes, in rows that are those of the range; the
        // memory lives until the write has passed.
        let enqueued = unsafe { ferry::write(machine, queue, seq, to, pitch, bytes) }?;
        if enqueued {
            return Ok(());
        }
    }
    // SAFETY: as above; the host's memory too, because the slot's drop queue keeps it.
    unsafe { upload(Call::Write, queue.stream(), to, pitch, source.as_ptr(), source.len()) }
}

/// Enqueues a read to `room`, which nobody is to touch until it has passed.
fn read(
    machine: &Arc<Machine>,
    queue: &Shared,
    seq: u64,
    from: &Region<Cuda>,
    pitch: Option<Pitch>,
    room: &mut Room,
) -> Result<(), Fault> {
    let (from, len) = address(Call::Read, from)?;
    fits(Call::Read, pitch, len, room.bytes().len())?;
    if !room.is_pinned() {
        // SAFETY: as in `write`; the caller keeps the room, which nobody else has, until the read has passed, and what is
        // left of it after an error is leaked.
        let enqueued = unsafe { ferry::read(machine, queue, seq, from, pitch, room.bytes_mut()) };
        if enqueued.inspect_err(|_| std::mem::forget(std::mem::take(room)))? {
            return Ok(());
        }
    }
    let bytes = room.bytes_mut();
    // SAFETY: as above.
    unsafe { download(Call::Read, queue.stream(), from, pitch, bytes.as_mut_ptr(), bytes.len()) }
}

/// Enqueues a copy of `len` bytes of the host to the device, to rows if there is a `pitch`.
///
/// # Safety
/// There are so many bytes at `from`, and at `to` as many, or rows for them; they live until the copy has passed.
pub(crate) unsafe fn upload(
    call: Call,
    stream: sys::CUstream,
    to: sys::CUdeviceptr,
    pitch: Option<Pitch>,
    from: *const u8,
    len: usize,
) -> Result<(), Fault> {
    let Some(pitch) = pitch else {
        // SAFETY: the caller's word.
        return check(call, unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast(), len, stream) });
    };
    let rows = sys::CUDA_MEMCPY2D {
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        srcHost: from.cast(),
        srcPitch: pitch.row,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstDevice: to,
        dstPitch: pitch.step,
        WidthInBytes: pitch.row,
        Height: pitch.rows,
        ..no_rows()
    };
    // SAFETY: the caller's word.
    check(call, unsafe { sys::cuMemcpy2DAsync_v2(&rows, stream) })
}

/// Enqueues a copy of `len` bytes of the device to the host, from rows if there is a `pitch`.
///
/// # Safety
/// As for [`upload`], the other way round; and nobody else uses the host's bytes until the copy has passed.
pub(crate) unsafe fn download(
    call: Call,
    stream: sys::CUstream,
    from: sys::CUdeviceptr,
    pitch: Option<Pitch>,
    to: *mut u8,
    len: usize,
) -> Result<(), Fault> {
    let Some(pitch) = pitch else {
        // SAFETY: the caller's word.
        return check(call, unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from, len, stream) });
    };
    let rows = sys::CUDA_MEMCPY2D {
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcDevice: from,
        srcPitch: pitch.step,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        dstHost: to.cast(),
        dstPitch: pitch.row,
        WidthInBytes: pitch.row,
        Height: pitch.rows,
        ..no_rows()
    };
    // SAFETY: the caller's word.
    check(call, unsafe { sys::cuMemcpy2DAsync_v2(&rows, stream) })
}

fn no_rows() -> sys::CUDA_MEMCPY2D {
    sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        srcHost: std::ptr::null(),
        srcDevice: 0,
        srcArray: std::ptr::null_mut(),
        srcPitch: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        dstHost: std::ptr::null_mut(),
        dstDevice: 0,
        dstArray: std::ptr::null_mut(),
        dstPitch: 0,
        WidthInBytes: 0,
        Height: 0,
    }
}
