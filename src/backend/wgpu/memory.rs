//! The memory of a wgpu device: one buffer of wgpu's a page.

#![forbid(unsafe_code)]

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use static_assertions::assert_impl_all;

use crate::backend::fault::Severity;
use crate::backend::wgpu::{Machine, Wgpu};
use crate::backend::{Call, Fault, Region};

/// What copies and bindings of wgpu's come in, in bytes.
pub(crate) const WORD: u64 = 4;

/// One buffer of wgpu's, a page of the library's.
///
/// Pages and not a buffer for each allocation: to make one and drop it takes 1.2 us where to find a range of a page and give it
/// back takes 0.06, measured on an H200; dispatches cost the same on both. What speaks against pages, that one which is bound
/// read-only and read-write at once is refused, cannot happen: every binding of the library's is read-write.
pub struct WgpuMemory {
    /// No other memory of this process has it, so that what was made for memory that is gone is never taken for new one.
    pub(crate) id: u64,
    pub(crate) buffer: wgpu::Buffer,
    bytes: u64,
    /// Of what the core does not give back: who is told that it is gone.
    known_to: Weak<Machine>,
}

impl WgpuMemory {
    /// What the library does with memory.
    pub(crate) const USAGE: wgpu::BufferUsages =
        wgpu::BufferUsages::STORAGE.union(wgpu::BufferUsages::COPY_SRC).union(wgpu::BufferUsages::COPY_DST);

    pub(crate) fn allocate(machine: &Machine, bytes: usize) -> Result<Self, Fault> {
        let size = (bytes as u64).max(WORD).next_multiple_of(WORD);
        let descriptor = wgpu::BufferDescriptor {
            label: Some("dacapo page"),
            size,
            usage: Self::USAGE,
            mapped_at_creation: false,
        };
        let buffer = machine.create(Call::Allocate, |device| device.create_buffer(&descriptor))?;
        Ok(Self::new(buffer))
    }

    pub(crate) fn new(buffer: wgpu::Buffer) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        // Only uniqueness matters.
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        WgpuMemory { id, bytes: buffer.size(), buffer, known_to: Weak::new() }
    }

    /// A buffer that goes by itself: one of the program's, or of the library's own.
    pub(crate) fn known_to(machine: &Weak<Machine>, buffer: wgpu::Buffer) -> Self {
        Self::new(buffer).told(machine)
    }

    /// The same, of which the machine is told when it goes.
    pub(crate) fn told(mut self, machine: &Weak<Machine>) -> Self {
        self.known_to = machine.clone();
        self
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for WgpuMemory {
    fn drop(&mut self) {
        // Under whatever lock: the groups that it is bound in go later.
        if let Some(machine) = self.known_to.upgrade() {
            machine.departed.lock().push(self.id);
            machine.watch.notice();
        }
    }
}

/// Where the bytes of a region are.
#[derive(Clone, Copy)]
pub(crate) struct Place<'r> {
    pub(crate) memory: &'r WgpuMemory,
    /// The first byte, from the start of the buffer.
    pub(crate) at: u64,
    pub(crate) len: u64,
}

impl<'r> Place<'r> {
    /// `None` for a region without bytes.
    ///
    /// # Errors
    /// A region that does not lie in its memory: nothing may be encoded for it.
    pub(crate) fn of(call: Call, region: &'r Region<Wgpu>) -> Result<Option<Self>, Fault> {
        let Some(contents) = &region.contents else { return Ok(None) };
        let memory = &contents.page.memory;
        let at = (contents.offset + region.start) as u64;
        let len = region.end.saturating_sub(region.start) as u64;
        if at.checked_add(len).is_none_or(|end| end > memory.bytes) {
            return Err(Fault::new(call, Severity::Call, "a range outside of its memory"));
        }
        Ok((len > 0).then_some(Place { memory, at, len }))
    }

    /// All of a buffer from its start.
    pub(crate) fn start_of(memory: &'r WgpuMemory, len: u64) -> Self {
        Place { memory, at: 0, len }
    }

    pub(crate) fn end(&self) -> u64 {
        self.at + self.len
    }

    /// Whether both ends lie between words.
    pub(crate) fn is_whole_words(&self) -> bool {
        self.at.is_multiple_of(WORD) && self.len.is_multiple_of(WORD)
    }
}

assert_impl_all!(WgpuMemory: Send, Sync);
