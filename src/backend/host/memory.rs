//! The memory of a host device.

#![allow(unsafe_code, reason = "device memory is handed to kernels as slices")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use static_assertions::assert_impl_all;

use crate::access::Access;
use crate::backend::fault::Severity;
use crate::backend::{Call, Fault};

/// What every allocation starts at a multiple of: a GPU's usual, and enough for any element type.
pub(crate) const ALIGNMENT: usize = 256;

/// One allocation, initialised from the start, so that its bytes are always a value of any plain-data type.
pub struct HostMemory {
    start: NonNull<u8>,
    layout: Layout,
    /// Whether the core has given it back. The bytes themselves live as long as anything that was enqueued on them.
    retired: AtomicBool,
    /// What uses it at this moment, in debug builds: the core's ordering must never let two conflict.
    active: Mutex<Vec<(Range<usize>, Access)>>,
}

// SAFETY: `start` is the only field that is not `Send` by itself. It points to memory that this value allocated and
// frees in `drop`, which any thread may do.
unsafe impl Send for HostMemory {}

// SAFETY: a shared `HostMemory` only hands out the address; `retired` and `active` are `Sync` by themselves. Whoever
// turns the address into references answers for their exclusiveness (see `HostArgs`).
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// `bytes` bytes of zeros; at least one, so that the layout is never empty.
    pub(crate) fn zeroed(bytes: usize) -> Result<Self, Fault> {
        let out_of_memory = || Fault::new(Call::Allocate, Severity::Memory, "the system has no more memory");
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT).map_err(|_| out_of_memory())?;
        // SAFETY: `alloc_zeroed` asks for a layout that is not empty: its size is at least 1.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or_else(out_of_memory)?;
        Ok(HostMemory { start, layout, retired: AtomicBool::new(false), active: Mutex::default() })
    }

    /// The address of the byte at `offset`, if `offset..offset + len` lies inside.
    pub(crate) fn address(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len)?;
        if end > self.layout.size() {
            return None;
        }
        // SAFETY: `add` needs the result inside the same allocation, at most one past its end: `offset <= end`, and
        // `end` is at most the size that was allocated, which `Layout` keeps below `isize::MAX`.
        Some(unsafe { self.start.add(offset) })
    }

    /// From here on, a use is a fault.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    /// Notes a use for as long as it lasts, and finds what hardware would punish or could not notice.
    pub(crate) fn enter(&self, range: Range<usize>, access: Access) -> Result<(), Fault> {
        if self.retired.load(Ordering::Acquire) {
            return Err(Fault::new(
                Call::Execute,
                Severity::Sticky,
                "illegal address: the memory was given back",
            ));
        }
        let mut active = self.active.lock();
        let races = |(used, how): &(Range<usize>, Access)| {
            used.start < range.end && range.start < used.end && how.conflicts(access)
        };
        if active.iter().any(races) {
            return Err(Fault::new(
                Call::Execute,
                Severity::Sticky,
                "race: two operations use the same bytes",
            ));
        }
        active.push((range, access));
        Ok(())
    }

    /// Ends what [`enter`](HostMemory::enter) noted.
    pub(crate) fn leave(&self, range: &Range<usize>, access: Access) {
        let mut active = self.active.lock();
        if let Some(index) = active.iter().position(|(used, how)| used == range && *how == access) {
            active.swap_remove(index);
        }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc_zeroed` with this very layout, and is freed here only, once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

assert_impl_all!(HostMemory: Send, Sync);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_outside_the_allocation_is_never_handed_out() {
        let memory = HostMemory::zeroed(64).unwrap();
        assert!(memory.address(0, 64).is_some());
        assert!(memory.address(64, 0).is_some());
        assert!(memory.address(1, 64).is_none());
        assert!(memory.address(usize::MAX, 2).is_none());
    }

    #[test]
    fn a_use_after_the_memory_was_given_back_is_a_sticky_fault() {
        let memory = HostMemory::zeroed(64).unwrap();
        memory.retire();
        assert!(memory.enter(0..1, Access::Read).unwrap_err().is_sticky());
    }

    #[test]
    fn two_uses_of_one_byte_race_unless_both_read() {
        let memory = HostMemory::zeroed(64).unwrap();
        memory.enter(0..32, Access::Read).unwrap();
        memory.enter(16..48, Access::Read).unwrap();
        memory.enter(48..64, Access::Write).unwrap();
        assert!(memory.enter(40..41, Access::Write).is_err());
        memory.leave(&(16..48), Access::Read);
        memory.enter(40..41, Access::Write).unwrap();
    }
}
