//! The arguments of a running host kernel, as slices.

#![allow(unsafe_code, reason = "device memory is handed to kernels as slices")]

use std::ops::Range;
use std::ptr::NonNull;

use bytemuck::Pod;

use crate::backend::Region;
use crate::backend::host::Host;

/// Hands out a launch's arguments in the order of its signature.
pub struct HostArgs<'a> {
    regions: std::slice::Iter<'a, Region<Host>>,
    scalars: &'a [u8],
    /// Which rows of how many this call is for; outputs are cut to them.
    rows: Option<(Range<usize>, usize)>,
}

impl<'a> HostArgs<'a> {
    /// The arguments of one call.
    ///
    /// # Safety
    /// For as long as `'a`, no byte of a region that the operation writes is used by anything else, and no byte of one
    /// that it reads is written by anything else, other than through this value. Calls that run at the same time with
    /// the same `regions` have disjoint `rows`, and each of them takes the arguments in the same order and kinds.
    pub(crate) unsafe fn new(
        regions: &'a [Region<Host>],
        scalars: &'a [u8],
        rows: Option<(Range<usize>, usize)>,
    ) -> Self {
        HostArgs { regions: regions.iter(), scalars, rows }
    }

    /// The next region, which the kernel reads.
    pub(crate) fn input<T: Pod>(&mut self) -> &'a [T] {
        let Some((address, len)) = self.next::<T>() else { return &[] };
        // SAFETY: `from_raw_parts` needs: a valid, aligned pointer to `len` elements of one live allocation (`next`
        // checked it against the page, which the region keeps alive for `'a`); initialised elements (pages start as
        // zeros, and any bytes are a `T: Pod`); no mutation for `'a` (the contract of `new`, and each region is handed
        // out once).
        unsafe { std::slice::from_raw_parts(address.as_ptr(), len) }
    }

    /// The next region, which the kernel writes: all of it, or the part of this call's rows.
    pub(crate) fn output<T: Pod>(&mut self) -> &'a mut [T] {
        let Some((address, len)) = self.next::<T>() else { return &mut [] };
        let (from, to) = match &self.rows {
            None => (0, len),
            Some((rows, of)) => {
                let row = len / of.max(&1);
                ((rows.start * row).min(len), (rows.end * row).min(len))
            }
        };
        // SAFETY: `add` stays inside the allocation that `next` checked: `from <= len`.
        let start = unsafe { address.add(from) };
        // SAFETY: `from_raw_parts_mut` needs what `from_raw_parts` does (see `input`), and no other access for `'a`:
        // no other operation may use these bytes (the contract of `new`), no other region of this launch has them
        // (a buffer owns its bytes, and one `&mut` of it made the region), no other call has these rows, and each
        // region is handed out once.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), to.saturating_sub(from)) }
    }

    /// The next scalar.
    pub(crate) fn scalar<T: Pod>(&mut self) -> T {
        let Some((bytes, rest)) = self.scalars.split_at_checked(size_of::<T>()) else {
            debug_assert!(false, "a launch gathers the scalars of its own signature");
            return T::zeroed();
        };
        self.scalars = rest;
        bytemuck::pod_read_unaligned(bytes)
    }

    /// The address and the number of elements of the next region; `None` for an empty one.
    fn next<T: Pod>(&mut self) -> Option<(NonNull<T>, usize)> {
        let region = self.regions.next()?;
        let (address, bytes) = address(region)?;
        let address = address.cast::<T>();
        // Allocations and casts see to it. A panic fails the launch, which an empty slice would turn into nothing done.
        assert!(address.is_aligned(), "a region starts at a multiple of its element's alignment");
        Some((address, bytes / size_of::<T>()))
    }
}

/// Where a region's bytes are, and how many.
pub(crate) fn address(region: &Region<Host>) -> Option<(NonNull<u8>, usize)> {
    let contents = region.contents.as_ref()?;
    let bytes = region.end.checked_sub(region.start)?;
    let address = contents.page.memory.address(contents.offset.checked_add(region.start)?, bytes)?;
    Some((address, bytes))
}
