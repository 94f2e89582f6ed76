//! Transfers from and to host memory that is not pinned: in parts, through a pinned block.
//!
//! The driver makes the caller of such a transfer wait for all that the stream is to do before it. Here the stream calls the
//! host, part by part, to copy between that memory and the block, which it copies to or from by itself; nobody waits.

#![allow(unsafe_code, reason = "calls of the CUDA driver, and bytes that it reads and writes on its own")]

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys;

use crate::backend::cuda::Machine;
use crate::backend::cuda::context::check;
use crate::backend::cuda::execute::{download, upload};
use crate::backend::cuda::pinned::{Block, CudaPinned};
use crate::backend::cuda::queue::Shared;
use crate::backend::{Call, Fault};
use crate::layout::Pitch;
use crate::memory::staging::Staged;

/// The driver takes so many bytes along in the call itself.
const CARRIED: usize = 64 << 10;

/// The block that each queue keeps, once it needed one.
const BLOCK: usize = 1 << 20;

/// A transfer has not many more parts than this: a stream takes only so many calls before the next one waits.
const PARTS: usize = 64;

/// Whether a write from memory that is not pinned would make its caller wait.
pub(crate) fn carries(len: usize) -> bool {
    len > CARRIED
}

/// What the parts of one transfer go through.
struct Boat {
    start: *mut u8,
    bytes: usize,
    /// Its own, where that of the queue would take too many parts.
    own: Option<Arc<CudaPinned>>,
}

/// A part of a transfer: where its bytes start on the host and on the device, and how they lie there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    host: usize,
    device: usize,
    len: usize,
    pitch: Option<Pitch>,
}

/// A copy on the host, and what must live until it is made.
struct Errand {
    from: *const u8,
    to: *mut u8,
    len: usize,
    _source: Option<Arc<Staged>>,
    _boat: Option<Arc<CudaPinned>>,
}

/// Enqueues a write of all of `bytes` to `to`, or to rows from there on; returns `false`, and has enqueued nothing, where there
/// is no pinned memory to be had.
///
/// # Safety
/// The device's bytes, of which there are as many, live until the write has passed.
pub(crate) unsafe fn write(
    machine: &Arc<Machine>,
    queue: &Shared,
    to: sys::CUdeviceptr,
    pitch: Option<Pitch>,
    bytes: &Arc<Staged>,
) -> Result<bool, Fault> {
    let source = bytes.bytes();
    let Some(boat) = Boat::of(machine, queue, source.len())? else { return Ok(false) };
    // The calls may wait for those of other streams, whose users may wait for what comes before them.
    queue.publish()?;
    for part in parts(source.len(), pitch, boat.bytes) {
        let from = source.as_ptr().wrapping_add(part.host);
        boat.errand(
            queue,
            Errand { _source: Some(bytes.clone()), ..Errand::copy(from, boat.start, part.len) },
        )?;
        let to = to + part.device as u64;
        // SAFETY: the block has room for the part, and lives as long as the queue, or until the last errand; the device's
        // bytes are the caller's word. The stream makes the calls and the copies one after the other.
        unsafe { upload(Call::Write, queue.stream(), to, part.pitch, boat.start, part.len) }?;
    }
    boat.leave(queue);
    Ok(true)
}

/// Enqueues a read of `room.len()` bytes from `from`, or from rows from there on; returns `false`, and has enqueued nothing,
/// where there is no pinned memory to be had.
///
/// # Safety
/// The device's bytes, of which there are as many, and those of `room`, which nobody else uses, live until the read has
/// passed; also after an error.
pub(crate) unsafe fn read(
    machine: &Arc<Machine>,
    queue: &Shared,
    from: sys::CUdeviceptr,
    pitch: Option<Pitch>,
    room: &mut [u8],
) -> Result<bool, Fault> {
    let Some(boat) = Boat::of(machine, queue, room.len())? else { return Ok(false) };
    queue.publish()?;
    for part in parts(room.len(), pitch, boat.bytes) {
        let from = from + part.device as u64;
        // SAFETY: as in `write`.
        unsafe { download(Call::Read, queue.stream(), from, part.pitch, boat.start, part.len) }?;
        let to = room.as_mut_ptr().wrapping_add(part.host);
        boat.errand(queue, Errand::copy(boat.start, to, part.len))?;
    }
    boat.leave(queue);
    Ok(true)
}

impl Boat {
    /// The block of the queue for small transfers, one of its own for a large one.
    fn of(machine: &Arc<Machine>, queue: &Shared, len: usize) -> Result<Option<Self>, Fault> {
        if len <= PARTS * BLOCK {
            let mut block = queue.block.lock();
            if block.is_none() {
                *block = lent(Block::zeroed(&machine.context, BLOCK))?;
            }
            return Ok(block.as_ref().map(|block| Boat { start: block.start(), bytes: BLOCK, own: None }));
        }
        let bytes = len.div_ceil(PARTS).next_multiple_of(BLOCK);
        let own = lent(CudaPinned::zeroed(machine, bytes))?.map(Arc::new);
        Ok(own.map(|own| Boat { start: own.start(), bytes, own: Some(own) }))
    }

    fn errand(&self, queue: &Shared, errand: Errand) -> Result<(), Fault> {
        let errand = Box::into_raw(Box::new(Errand { _boat: self.own.clone(), ..errand }));
        // SAFETY: the stream lives as long as `queue`. `run` takes the pointer to an `Errand` back, which the driver calls
        // once, or never if it refuses or the device is lost.
        let code = unsafe { sys::cuLaunchHostFunc(queue.stream(), Some(run), errand.cast()) };
        check(Call::HostCall, code).inspect_err(|_| {
            // SAFETY: the pointer came from `into_raw` above, and the driver, which refused it, does not call.
            drop(unsafe { Box::from_raw(errand) });
        })
    }

    /// Keeps a block of its own until the last copy is made.
    fn leave(mut self, queue: &Shared) {
        let none = std::ptr::NonNull::dangling().as_ptr();
        if self.own.is_some() && self.errand(queue, Errand::copy(none, none, 0)).is_ok() {
            self.own = None;
        }
    }
}

impl Drop for Boat {
    /// Leaks a block that the stream may still use: the transfer failed half way.
    fn drop(&mut self) {
        std::mem::forget(self.own.take());
    }
}

impl Errand {
    fn copy(from: *const u8, to: *mut u8, len: usize) -> Self {
        Errand { from, to, len, _source: None, _boat: None }
    }
}

/// # Safety
/// `data` came from [`Boat::errand`], and this is the only call with it.
unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: by the contract of this function, `data` is an `Errand` of `into_raw` that nobody else has.
    let errand = unsafe { Box::from_raw(data.cast::<Errand>()) };
    // SAFETY: both are the addresses of `len` bytes that live until the transfer has passed, of which this is a part, and
    // that nothing else uses before: the block by the order of the stream, the other side by the caller's word. They are two
    // allocations.
    unsafe { std::ptr::copy_nonoverlapping(errand.from, errand.to, errand.len) };
}

/// No pinned memory is no reason to fail.
fn lent<T>(pinned: Result<T, Fault>) -> Result<Option<T>, Fault> {
    pinned.map(Some).or_else(|fault| if fault.is_sticky() { Err(fault) } else { Ok(None) })
}

/// The parts of `len` bytes, of `most` bytes each at most.
fn parts(len: usize, pitch: Option<Pitch>, most: usize) -> impl Iterator<Item = Part> {
    let (rows, row, step) = pitch.map_or((1, len, len), |pitch| (pitch.rows, pitch.row, pitch.step));
    // As many whole rows as there is room for; of a row for which there is none, as much as there is.
    let (some, width) = if row <= most { ((most / row.max(1)).max(1), row) } else { (1, most) };
    let starts = (0..rows)
        .step_by(some)
        .flat_map(move |first| (0..row).step_by(width.max(1)).map(move |at| (first, at)));
    starts.map(move |(first, at)| {
        let (rows, width) = (some.min(rows - first), width.min(row - at));
        let pitch = pitch.filter(|_| rows > 1).map(|pitch| Pitch { rows, ..pitch });
        Part { host: first * row + at, device: first * step + at, len: rows * width, pitch }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies bytes that say where they are, part by part.
    fn copied(len: usize, pitch: Option<Pitch>, most: usize) -> Vec<usize> {
        let span = pitch.map_or(len, |pitch| (pitch.rows - 1) * pitch.step + pitch.row);
        let mut device = vec![usize::MAX; span];
        for part in parts(len, pitch, most) {
            assert!(part.len <= most, "{part:?}");
            let rows = part.pitch.unwrap_or(Pitch { rows: 1, row: part.len, step: part.len });
            assert_eq!(rows.rows * rows.row, part.len);
            let host = &(part.host..part.host + part.len).collect::<Vec<_>>();
            for (row, bytes) in host.chunks(rows.row).enumerate() {
                device[part.device + row * rows.step..][..rows.row].copy_from_slice(bytes);
            }
        }
        device
    }

    /// A part that is left out, or lands elsewhere, is a silent corruption.
    #[test]
    fn the_parts_of_a_transfer_are_all_of_it_in_its_places() {
        for len in 1..40 {
            for most in 1..45 {
                assert_eq!(copied(len, None, most), (0..len).collect::<Vec<_>>(), "{len} by {most}");
            }
        }
        for (rows, row, step) in
            (1..7).flat_map(|rows| [(rows, 1, 1), (rows, 5, 5), (rows, 3, 4), (rows, 7, 20)])
        {
            let mut expected = vec![usize::MAX; (rows - 1) * step + row];
            (0..rows * row).for_each(|at| expected[at / row * step + at % row] = at);
            for most in 1..50 {
                let pitch = Pitch { rows, row, step };
                assert_eq!(copied(rows * row, Some(pitch), most), expected, "{pitch:?} by {most}");
            }
        }
    }
}
