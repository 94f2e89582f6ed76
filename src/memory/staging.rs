//! Host memory on its way to or from the device: pinned where there is some, else from the heap.
//!
//! A driver copies straight to and from pinned memory, and only there without anybody waiting. It is dear to get and
//! locks physical pages, so a device keeps what it has, in classes of powers of two, up to a limit.

#![forbid(unsafe_code)]

use std::sync::Arc;

use parking_lot::Mutex;
use static_assertions::assert_impl_all;

use crate::backend::{Fault, HostBytes};
use crate::memory::report::StagingReport;
use crate::readback::Readback;

/// A device's pinned memory, and the shells that transfers travel in.
pub(crate) struct Staging {
    pool: Arc<Pool>,
    shells: Mutex<Shells>,
}

/// Host bytes with one owner. Pinned ones go back to their pool when it lets go of them.
#[derive(Default)]
pub struct Room {
    memory: Memory,
    len: usize,
}

#[derive(Default)]
enum Memory {
    #[default]
    Nowhere,
    Pinned {
        block: Box<dyn HostBytes>,
        pool: Arc<Pool>,
    },
    Heap(Box<[u8]>),
    /// What the user handed over.
    Theirs(Box<dyn OwnedBytes>),
}

/// The bytes of a write, which its command and the drop queue own together.
#[derive(Default)]
pub(crate) struct Staged(Room);

/// Bytes that a user handed over, whatever they were elements of.
pub(crate) trait OwnedBytes: Send + Sync {
    fn bytes(&self) -> &[u8];
    /// How much memory they keep from being used otherwise, which may be more than there are.
    fn held(&self) -> usize {
        self.bytes().len()
    }
}

struct Pool {
    limit: usize,
    state: Mutex<Blocks>,
}

struct Blocks {
    /// Free blocks, by class: those of 2^n bytes are at n.
    free: [Vec<Box<dyn HostBytes>>; usize::BITS as usize],
    held: usize,
    in_use: usize,
    fallbacks: u64,
}

/// Empty ones, for the next transfers: each is an allocation that need not be made.
#[derive(Default)]
struct Shells {
    writes: Vec<Arc<Staged>>,
    reads: Vec<Arc<Readback>>,
}

/// Blocks are this large at least, so that small transfers of all sizes share them.
const SMALLEST: usize = 1 << 10;

/// More shells than may be in flight on all the slots of a usual device need not be kept.
const SHELLS: usize = 4096;

impl Staging {
    /// Holds at most `limit` bytes of pinned memory.
    pub(crate) fn new(limit: usize) -> Self {
        let free = std::array::from_fn(|_| Vec::new());
        let state = Mutex::new(Blocks { free, held: 0, in_use: 0, fallbacks: 0 });
        Staging { pool: Arc::new(Pool { limit, state }), shells: Mutex::default() }
    }

    /// A copy of `bytes`.
    ///
    /// # Errors
    /// A fault of `pin` that is sticky; one that is not leaves the heap.
    pub(crate) fn copy(&self, bytes: &[u8], pin: impl FnOnce(usize) -> Pinned) -> Result<Arc<Staged>, Fault> {
        let room = match self.block(bytes.len(), pin)? {
            Some(mut room) => {
                room.bytes_mut().copy_from_slice(bytes);
                room
            }
            None => Room::copy_of(bytes),
        };
        Ok(self.staged(room))
    }

    /// Room for `len` bytes, in which a read lands. Nothing is to look at them before: they may be anybody's.
    ///
    /// # Errors
    /// As for [`copy`](Staging::copy).
    pub(crate) fn landing(
        &self,
        len: usize,
        pin: impl FnOnce(usize) -> Pinned,
    ) -> Result<Arc<Readback>, Fault> {
        let room = match self.block(len, pin)? {
            Some(room) => room,
            None => Room { memory: Memory::Heap(vec![0; len].into()), len },
        };
        let shell = self.shells.lock().reads.pop();
        Ok(Readback::renew(shell, room))
    }

    /// Wraps `room` for a write.
    pub(crate) fn staged(&self, room: Room) -> Arc<Staged> {
        let shell = self.shells.lock().writes.pop();
        if let Some(mut shell) = shell
            && let Some(staged) = Arc::get_mut(&mut shell)
        {
            staged.0 = room;
            return shell;
        }
        Arc::new(Staged(room))
    }

    /// Takes back what carried a write whose operation is done.
    pub(crate) fn recycle_write(&self, mut staged: Arc<Staged>) {
        let Some(inner) = Arc::get_mut(&mut staged) else { return };
        drop(std::mem::take(&mut inner.0));
        let mut shells = self.shells.lock();
        if shells.writes.len() < SHELLS {
            shells.writes.push(staged);
        }
    }

    /// Takes back what carried a read whose operation is done, unless its reader still wants it.
    pub(crate) fn recycle_read(&self, mut readback: Arc<Readback>) {
        let Some(inner) = Arc::get_mut(&mut readback) else { return };
        inner.empty();
        let mut shells = self.shells.lock();
        if shells.reads.len() < SHELLS {
            shells.reads.push(readback);
        }
    }

    /// Gives all pinned memory that carries nothing back to the driver.
    pub(crate) fn trim(&self) {
        let mut surplus = Vec::new();
        let mut state = self.pool.state.lock();
        state.evict(usize::MAX, &mut surplus);
        drop(state);
    }

    pub(crate) fn report(&self) -> StagingReport {
        let state = self.pool.state.lock();
        StagingReport { held: state.held, in_use: state.in_use, fallbacks: state.fallbacks }
    }

    /// Pinned room for `len` bytes: a free block, else a new one; `None` if the limit or the driver has none.
    fn block(&self, len: usize, pin: impl FnOnce(usize) -> Pinned) -> Result<Option<Room>, Fault> {
        let class = len.max(SMALLEST).checked_next_power_of_two().filter(|class| *class <= self.pool.limit);
        let mut state = self.pool.state.lock();
        let Some(class) = class else {
            state.fallbacks += 1;
            return Ok(None);
        };
        if let Some(block) = state.of(class).pop() {
            state.in_use += class;
            return Ok(Some(self.room(block, len)));
        }
        let room = self.pool.limit - class;
        if state.in_use > room {
            // Giving up what is free would not be enough.
            state.fallbacks += 1;
            return Ok(None);
        }
        let mut surplus = Vec::new();
        let excess = state.held.saturating_sub(room);
        state.evict(excess, &mut surplus);
        // Counted before the driver is asked, which is not done under the lock.
        state.held += class;
        state.in_use += class;
        drop(state);
        drop(surplus);
        match pin(class).map(|block| (block.bytes().len() == class).then_some(block)) {
            Ok(Some(block)) => Ok(Some(self.room(block, len))),
            outcome => {
                let mut state = self.pool.state.lock();
                state.held -= class;
                state.in_use -= class;
                state.fallbacks += 1;
                outcome.map(|_| None).or_else(|fault| if fault.is_sticky() { Err(fault) } else { Ok(None) })
            }
        }
    }

    fn room(&self, block: Box<dyn HostBytes>, len: usize) -> Room {
        Room { memory: Memory::Pinned { block, pool: self.pool.clone() }, len }
    }
}

/// What a driver says when it is asked for pinned memory.
pub(crate) type Pinned = Result<Box<dyn HostBytes>, Fault>;

impl Room {
    /// A copy on the heap, which no pool has to do without.
    pub(crate) fn copy_of(bytes: &[u8]) -> Self {
        Room { memory: Memory::Heap(bytes.into()), len: bytes.len() }
    }

    /// What a user handed over.
    pub(crate) fn theirs(bytes: Box<dyn OwnedBytes>) -> Self {
        let len = bytes.bytes().len();
        Room { memory: Memory::Theirs(bytes), len }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        let all = match &self.memory {
            Memory::Nowhere => &[],
            Memory::Pinned { block, .. } => block.bytes(),
            Memory::Heap(bytes) => bytes,
            Memory::Theirs(bytes) => bytes.bytes(),
        };
        // What is shorter than it says has none that may be shown.
        all.get(..self.len).unwrap_or_default()
    }

    /// The bytes, to be overwritten; those of the user's are not.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let all = match &mut self.memory {
            Memory::Nowhere | Memory::Theirs(_) => &mut [],
            Memory::Pinned { block, .. } => block.bytes_mut(),
            Memory::Heap(bytes) => bytes,
        };
        let len = self.len.min(all.len());
        all.get_mut(..len).unwrap_or_default()
    }

    /// Whether the driver copies straight to and from it.
    #[cfg(feature = "cuda")]
    pub(crate) fn is_pinned(&self) -> bool {
        matches!(self.memory, Memory::Pinned { .. })
    }

    /// How much memory this keeps from being used otherwise.
    pub(crate) fn held(&self) -> usize {
        match &self.memory {
            Memory::Nowhere => 0,
            Memory::Pinned { block, .. } => block.bytes().len(),
            Memory::Heap(bytes) => bytes.len(),
            Memory::Theirs(bytes) => bytes.held(),
        }
    }
}

impl Drop for Room {
    /// Never calls the driver: this may be anywhere, under any lock of the user's.
    fn drop(&mut self) {
        if let Memory::Pinned { block, pool } = std::mem::take(&mut self.memory) {
            let class = block.bytes().len();
            let mut state = pool.state.lock();
            state.in_use -= class;
            state.of(class).push(block);
        }
    }
}

impl Staged {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    pub(crate) fn held(&self) -> usize {
        self.0.held()
    }

    /// Whether the driver copies straight from it.
    #[cfg(feature = "cuda")]
    pub(crate) fn is_pinned(&self) -> bool {
        self.0.is_pinned()
    }
}

impl Blocks {
    /// The free blocks of `class` bytes, a power of two.
    fn of(&mut self, class: usize) -> &mut Vec<Box<dyn HostBytes>> {
        #[allow(
            clippy::indexing_slicing,
            reason = "a number has fewer trailing zeros than bits, unless it is zero"
        )]
        &mut self.free[class.max(1).trailing_zeros() as usize]
    }

    /// Moves free blocks to `surplus` until they come to `bytes`, the largest first.
    fn evict(&mut self, bytes: usize, surplus: &mut Vec<Box<dyn HostBytes>>) {
        let mut evicted = 0;
        for free in self.free.iter_mut().rev() {
            while evicted < bytes
                && let Some(block) = free.pop()
            {
                evicted += block.bytes().len();
                surplus.push(block);
            }
        }
        self.held -= evicted;
    }
}

assert_impl_all!(Staging: Send, Sync);
assert_impl_all!(Staged: Send, Sync);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Call;
    use crate::backend::fault::Severity;

    struct Plain(Vec<u8>);

    impl HostBytes for Plain {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
        fn bytes_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }

    fn pin(bytes: usize) -> Pinned {
        Ok(Box::new(Plain(vec![0xEE; bytes])))
    }

    fn nothing(_: usize) -> Pinned {
        unreachable!("the driver must not be asked")
    }

    fn refused(severity: Severity) -> impl FnOnce(usize) -> Pinned {
        move |_| Err(Fault::new(Call::Pin, severity, "no"))
    }

    /// Pinned memory is asked for once, whatever passes through it.
    #[test]
    fn a_block_serves_every_size_of_its_class_again_and_again() {
        let staging = Staging::new(1 << 20);
        let first = staging.copy(&[1; 1000], pin).unwrap();
        assert_eq!((first.bytes(), first.held()), (&[1; 1000][..], 1024));
        assert_eq!(staging.report(), StagingReport { held: 1024, in_use: 1024, fallbacks: 0 });
        staging.recycle_write(first);
        for len in [1, 512, 1024] {
            staging.recycle_write(staging.copy(&vec![2; len], nothing).unwrap());
        }
        assert_eq!(staging.report(), StagingReport { held: 1024, in_use: 0, fallbacks: 0 });
    }

    /// A dropped handle that is not the last one must not give away what the other still uses.
    #[test]
    fn a_block_is_free_when_its_last_owner_lets_go_of_it() {
        let staging = Staging::new(1 << 20);
        let one = staging.copy(&[1; 10], pin).unwrap();
        let other = one.clone();
        staging.recycle_write(one);
        assert_eq!(staging.report().in_use, 1024);
        let beside = staging.copy(&[2; 10], pin).unwrap();
        assert_eq!((other.bytes(), beside.bytes()), (&[1; 10][..], &[2; 10][..]));
        drop(other);
        assert_eq!(staging.report().in_use, 1024);
    }

    /// Blocks of the wrong class would else fill the pool for ever.
    #[test]
    fn free_blocks_of_other_classes_make_room_and_those_in_use_do_not() {
        let staging = Staging::new(4096);
        drop(staging.copy(&[1; 1024], pin).unwrap());
        let used = staging.copy(&[1; 2048], pin).unwrap();
        assert_eq!(staging.report().held, 3072);
        let exhausted = staging.copy(&[3; 4096], nothing).unwrap();
        assert_eq!((exhausted.bytes().len(), staging.report().fallbacks), (4096, 1));
        assert_eq!(staging.report().held, 3072, "nothing is given up in vain");
        drop(used);
        let fits = staging.copy(&[4; 4096], pin).unwrap();
        assert_eq!(staging.report(), StagingReport { held: 4096, in_use: 4096, fallbacks: 1 });
        drop(fits);
        staging.trim();
        assert_eq!(staging.report(), StagingReport { held: 0, in_use: 0, fallbacks: 1 });
    }

    #[test]
    fn a_refusal_leaves_the_heap_and_only_a_sticky_one_is_an_error() {
        let staging = Staging::new(1 << 20);
        for severity in [Severity::Call, Severity::Memory] {
            assert_eq!(staging.copy(&[5; 9], refused(severity)).unwrap().bytes(), [5; 9]);
        }
        assert!(staging.copy(&[5; 9], refused(Severity::Sticky)).is_err());
        assert_eq!(staging.report(), StagingReport { held: 0, in_use: 0, fallbacks: 3 });
    }

    /// Rounding up to a class must neither overflow nor ask for more than there may be.
    #[test]
    fn what_no_block_may_hold_goes_through_the_heap() {
        let staging = Staging::new(0);
        assert_eq!(staging.copy(&[6; 3], nothing).unwrap().bytes(), [6; 3]);
        let staging = Staging::new(usize::MAX);
        assert!(staging.block(usize::MAX, nothing).unwrap().is_none());
    }
}
