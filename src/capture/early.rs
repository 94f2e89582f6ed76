//! Memory of buffers born in a recording whose addresses were given away before its end.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::backend::Backend;
use crate::device::DeviceCore;
use crate::error::{Error, Result};
use crate::memory::Reserved;
use crate::memory::pool::release;

/// Bytes reserved for one buffer. They go back to their pool if the recording never becomes a graph: nothing ran on them.
pub(crate) struct Early<B: Backend> {
    device: Arc<DeviceCore<B>>,
    /// `None` once the buffer has them.
    reserved: Option<Reserved<B>>,
}

impl<B: Backend> Early<B> {
    pub(crate) fn new(device: &Arc<DeviceCore<B>>, reserved: Reserved<B>) -> Self {
        Early { device: device.clone(), reserved: Some(reserved) }
    }

    /// Where the byte at `offset` is.
    pub(crate) fn address(&self, offset: usize) -> Result<u64> {
        let contents = self.reserved.as_ref().map(|reserved| &reserved.contents);
        let address = contents.and_then(|of| B::address(&of.page.memory, of.offset + offset));
        address
            .ok_or(Error::Unsupported { operation: "raw", reason: "this backend's memory has no addresses" })
    }

    /// Hands the bytes over.
    pub(crate) fn take(mut self) -> Option<Reserved<B>> {
        self.reserved.take()
    }
}

impl<B: Backend> Drop for Early<B> {
    fn drop(&mut self) {
        if let Some(Reserved { contents, lease, history }) = self.reserved.take() {
            release(&self.device, contents, lease, history);
        }
    }
}
