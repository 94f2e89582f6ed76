//! Transfers from and to host memory that is not pinned: in parts, through a pinned block of the queue's.
//!
//! The driver makes the caller of such a transfer wait for all that the stream is to do before it. Here the stream calls the
//! host, part by part, to copy between that memory and the block, which it copies to or from by itself; nobody waits.

#![allow(unsafe_code, reason = "calls of the CUDA driver, and bytes that it reads and writes on its own")]

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::backend::cuda::Machine;
use crate::backend::cuda::context::check;
use crate::backend::cuda::execute::{download, upload};
use crate::backend::cuda::pinned::Block;
use crate::backend::cuda::queue::Shared;
use crate::backend::cuda::retire::Retired;
use crate::backend::cuda::sys;
use crate::backend::{Call, Fault};
use crate::layout::Pitch;
use crate::memory::staging::Staged;

/// The driver takes so many bytes along in the call itself, as often as a stream takes calls.
const CARRIED: usize = 1 << 10;

/// The least block.
const BLOCK: usize = 1 << 20;

/// The parts of one transfer, or twice as many where rows fill them badly: what is larger gets a larger block.
const PARTS: usize = 16;

/// With so many parts before it the next operation waits. A stream takes about 56, each of which makes it change from the
/// host to a copy and back; who brings more waits in the driver, under the lock of the slot.
const IN_FLIGHT: usize = 24;

/// Whether a write from memory that is not pinned would make its caller wait.
pub(crate) fn carries(len: usize) -> bool {
    len > CARRIED
}

/// The block of a queue, and what of its stream goes through it.
///
/// In the order of its fields: every launch looks at the first.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Ferry {
    /// How many parts the transfers have, to be read without their lock.
    parts: AtomicUsize,
    /// There once it was needed.
    block: Mutex<Option<Block>>,
    /// Transfers that are not known to be done: their operations, and how many parts they have.
    transfers: Mutex<VecDeque<(u64, usize)>>,
}

/// Where the parts of one transfer go through.
#[derive(Clone, Copy)]
struct Boat {
    start: *mut u8,
    bytes: usize,
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
}

/// Enqueues a write of all of `bytes` to `to`, or to rows from there on, as the `seq`-th operation; returns `false`, and has
/// enqueued nothing, where there is no pinned memory to be had.
///
/// # Safety
/// The device's bytes, of which there are as many, live until the write has passed, also after an error.
pub(crate) unsafe fn write(
    machine: &Arc<Machine>,
    queue: &Shared,
    seq: u64,
    to: sys::CUdeviceptr,
    pitch: Option<Pitch>,
    bytes: &Arc<Staged>,
) -> Result<bool, Fault> {
    let source = bytes.bytes();
    let Some(boat) = queue.ferry.boat(machine, source.len())? else { return Ok(false) };
    queue.ferry.board(queue, seq, source.len(), pitch, boat)?;
    for part in parts(source.len(), pitch, boat.bytes) {
        let from = source.as_ptr().wrapping_add(part.host);
        // With what it reads: after an error nobody else keeps that.
        send(queue, Errand { from, to: boat.start, len: part.len, _source: Some(bytes.clone()) })?;
        let to = to + part.device as u64;
        // SAFETY: the block has room for the part and is kept until the stream is done with it; the device's bytes are the
        // caller's word. The stream makes the calls and the copies one after the other.
        unsafe { upload(Call::Write, queue.stream(), to, part.pitch, boat.start, part.len) }?;
    }
    Ok(true)
}

/// Enqueues a read of `room.len()` bytes from `from`, or from rows from there on, as the `seq`-th operation; returns `false`,
/// and has enqueued nothing, where there is no pinned memory to be had.
///
/// # Safety
/// The device's bytes, of which there are as many, and those of `room`, which nobody else uses, live until the read has
/// passed, also after an error.
pub(crate) unsafe fn read(
    machine: &Arc<Machine>,
    queue: &Shared,
    seq: u64,
    from: sys::CUdeviceptr,
    pitch: Option<Pitch>,
    room: &mut [u8],
) -> Result<bool, Fault> {
    let Some(boat) = queue.ferry.boat(machine, room.len())? else { return Ok(false) };
    queue.ferry.board(queue, seq, room.len(), pitch, boat)?;
    for part in parts(room.len(), pitch, boat.bytes) {
        let from = from + part.device as u64;
        // SAFETY: as in `write`.
        unsafe { download(Call::Read, queue.stream(), from, part.pitch, boat.start, part.len) }?;
        let to = room.as_mut_ptr().wrapping_add(part.host);
        send(queue, Errand { from: boat.start, to, len: part.len, _source: None })?;
    }
    Ok(true)
}

impl Ferry {
    /// Whether there may be an operation that is [`overdue`](Ferry::overdue).
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        // Relaxed: a bound, which several threads at once may miss by a transfer each.
        self.parts.load(Ordering::Relaxed) >= IN_FLIGHT
    }

    /// The operation to wait for before the next one is enqueued, if there is one.
    pub(crate) fn overdue(&self, completed: u64) -> Option<u64> {
        if self.is_full() { self.oldest(completed) } else { None }
    }

    #[cold]
    fn oldest(&self, completed: u64) -> Option<u64> {
        let mut transfers = self.transfers.lock();
        while transfers.pop_front_if(|(seq, _)| *seq <= completed).is_some() {}
        let all: usize = transfers.iter().map(|(_, parts)| parts).sum();
        self.parts.store(all, Ordering::Relaxed);
        let mut left = all;
        transfers.iter().take_while(|_| all >= IN_FLIGHT).find_map(|(seq, parts)| {
            left -= parts;
            (left < IN_FLIGHT).then_some(*seq)
        })
    }

    /// The block, which grows with what is to go through it.
    fn boat(&self, machine: &Arc<Machine>, len: usize) -> Result<Option<Boat>, Fault> {
        let bytes = len.div_ceil(PARTS).max(BLOCK).next_power_of_two();
        let mut block = self.block.lock();
        if block.as_ref().is_none_or(|block| block.bytes() < bytes) {
            match Block::zeroed(&machine.context, bytes) {
                Ok(larger) => {
                    let smaller = block.replace(larger);
                    smaller.into_iter().for_each(|block| machine.retire(Retired::Pinned(block)));
                }
                Err(fault) if fault.is_sticky() => return Err(fault),
                // More parts than usual, or the driver's own way: no reason to fail.
                Err(_) => {}
            }
        }
        Ok(block.as_ref().map(|block| Boat { start: block.start(), bytes: block.bytes() }))
    }

    /// Notes a transfer, just before it is enqueued.
    fn board(
        &self,
        queue: &Shared,
        seq: u64,
        len: usize,
        pitch: Option<Pitch>,
        boat: Boat,
    ) -> Result<(), Fault> {
        // The calls may wait for those of other streams, whose users may wait for what comes before them.
        queue.publish()?;
        let parts = parts(len, pitch, boat.bytes).count();
        self.transfers.lock().push_back((seq, parts));
        self.parts.fetch_add(parts, Ordering::Relaxed);
        Ok(())
    }

    /// The block, which the stream is done with.
    pub(crate) fn into_block(self) -> Option<Block> {
        self.block.into_inner()
    }
}

/// Has the stream make a copy on the host.
fn send(queue: &Shared, errand: Errand) -> Result<(), Fault> {
    let errand = Box::into_raw(Box::new(errand));
    // SAFETY: the stream lives as long as `queue`. `run` takes the pointer to an `Errand` back, which the driver calls once,
    // or never if it refuses or the device is lost.
    let code = unsafe { sys::cuLaunchHostFunc(queue.stream(), Some(run), errand.cast()) };
    check(Call::HostCall, code).inspect_err(|_| {
        // SAFETY: the pointer came from `into_raw` above, and the driver, which refused it, does not call.
        drop(unsafe { Box::from_raw(errand) });
    })
}

/// # Safety
/// `data` came from [`send`], and this is the only call with it.
unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: by the contract of this function, `data` is an `Errand` of `into_raw` that nobody else has.
    let errand = unsafe { Box::from_raw(data.cast::<Errand>()) };
    // SAFETY: both are the addresses of `len` bytes that live until the transfer has passed, of which this is a part, and
    // that nothing else uses before: the block by the order of the stream, the other side by the caller's word. They are two
    // allocations.
    unsafe { std::ptr::copy_nonoverlapping(errand.from, errand.to, errand.len) };
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

    fn with(transfers: &[(u64, usize)]) -> Ferry {
        let parts = transfers.iter().map(|(_, parts)| parts).sum();
        Ferry {
            transfers: Mutex::new(transfers.iter().copied().collect()),
            parts: AtomicUsize::new(parts),
            ..Ferry::default()
        }
    }

    /// A stream that was given more than it takes makes who gives it more wait in the driver, under a lock.
    #[test]
    fn who_comes_after_too_many_parts_waits_for_as_few_transfers_as_will_do() {
        assert_eq!(with(&[]).overdue(0), None);
        assert_eq!(with(&[(1, IN_FLIGHT - 1)]).overdue(0), None);
        assert_eq!(with(&[(1, IN_FLIGHT)]).overdue(0), Some(1));
        let half = IN_FLIGHT / 2;
        assert_eq!(with(&[(3, 1), (5, half), (9, half - 1)]).overdue(0), Some(3));
        let ferry = with(&[(3, half), (5, half), (9, half), (12, half)]);
        assert_eq!(ferry.overdue(0), Some(9), "what is left is less than the bound");
        assert_eq!(ferry.overdue(5), Some(9));
        assert_eq!((ferry.overdue(9), ferry.overdue(0)), (None, None), "what is done is forgotten");
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
