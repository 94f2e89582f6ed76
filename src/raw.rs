//! The address of a buffer, for code that is not this crate's.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use static_assertions::{assert_impl_all, assert_not_impl_any};

use crate::backend::Backend;
use crate::backend::host::Host;
use crate::buffer::{Buffer, Slice};
use crate::callback;
use crate::error::{Error, Result};
use crate::kernel::Element;
use crate::memory::allocation::Allocation;

/// Where a range of a buffer is in the device's memory; made by [`Buffer::raw`] and [`Slice::raw`].
///
/// For as long as it lives, the bytes neither move nor go back to their pool, also when the buffer is dropped. The rest
/// of their page stays usable. What others do with the address is theirs to order: by [`before`](crate::Enqueue::before) and
/// [`after`](crate::Enqueue::after) where they have streams, else by waiting for the buffer's work with
/// [`sync`](crate::Enqueue::sync) before, and for theirs after. Keep this until their work is done, or until the stream that
/// comes after it has used the buffer: whoever gets the bytes next knows of our uses alone.
#[must_use = "the address is only good for as long as this lives"]
pub struct RawBuffer<B: Backend = Host> {
    alloc: Arc<Allocation<B>>,
    address: u64,
    bytes: usize,
}

impl<B: Backend> RawBuffer<B> {
    /// A hold on a range of bytes.
    pub(crate) fn hold(alloc: &Arc<Allocation<B>>, range: Range<usize>) -> Result<Self> {
        let mut state = alloc.state.lock();
        let address = match state.resolve("raw")? {
            Some(contents) if !range.is_empty() => {
                let address = B::address(&contents.page.memory, contents.offset + range.start);
                let reason = "this backend's memory has no addresses";
                address.ok_or(Error::Unsupported { operation: "raw", reason })?
            }
            _ => 0,
        };
        state.pins += 1;
        Ok(RawBuffer { alloc: alloc.clone(), address, bytes: range.len() })
    }

    /// The first byte's address on the device; 0 for an empty range, which lies nowhere.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How many bytes there are.
    pub fn len_bytes(&self) -> usize {
        self.bytes
    }
}

impl<T: Element, B: Backend> Buffer<T, B> {
    /// The buffer's address, and a hold on its bytes.
    ///
    /// # Errors
    /// [`Error::StillRecording`] and [`Error::NeverSealed`] for a buffer born in a recording, [`Error::Unsupported`] on a
    /// backend whose memory has no addresses, [`Error::InCallback`]; nothing is held.
    pub fn raw(&self) -> Result<RawBuffer<B>> {
        self.as_slice().raw()
    }
}

impl<T: Pod, B: Backend> Slice<'_, T, B> {
    /// The range's address, and a hold on its bytes.
    ///
    /// # Errors
    /// As for [`Buffer::raw`].
    pub fn raw(&self) -> Result<RawBuffer<B>> {
        callback::refuse("raw")?;
        let (alloc, start, end) = self.parts();
        RawBuffer::hold(alloc, start..end)
    }
}

impl<B: Backend> Drop for RawBuffer<B> {
    fn drop(&mut self) {
        self.alloc.state.lock().pins -= 1;
    }
}

impl<B: Backend> std::fmt::Debug for RawBuffer<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawBuffer")
            .field("address", &format_args!("{:#x}", self.address))
            .field("len_bytes", &self.bytes)
            .finish()
    }
}

assert_impl_all!(RawBuffer<Host>: Send, Sync);
assert_not_impl_any!(RawBuffer<Host>: Clone, Copy);
