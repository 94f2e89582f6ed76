//! Host bytes on their way to the device, in memory that both see.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::backend::fault::Severity;
use crate::backend::wgpu::Machine;
use crate::backend::wgpu::memory::WORD;
use crate::backend::{Call, Fault};

/// Chunks of mapped memory that one encoder copies from.
///
/// The copies are commands like any other: a write by the queue would overtake what is encoded and not submitted.
#[derive(Default)]
pub(crate) struct Uploads {
    open: Option<Chunk>,
    full: Vec<wgpu::Buffer>,
}

struct Chunk {
    buffer: wgpu::Buffer,
    used: u64,
}

/// Chunks that are mapped and free.
#[derive(Default)]
pub(crate) struct Chunks {
    free: Mutex<VecDeque<wgpu::Buffer>>,
}

/// The size of the chunks that are kept; more bytes at once get one of their own, which is not.
const CHUNK: u64 = 1 << 20;
/// So many free chunks are kept.
const KEPT: usize = 32;

impl Uploads {
    /// Puts `bytes` where the device can copy them from, filled up to whole words.
    pub(crate) fn put(&mut self, machine: &Machine, bytes: &[u8]) -> Result<(wgpu::Buffer, u64), Fault> {
        let len = (bytes.len() as u64).next_multiple_of(WORD);
        if self.open.as_ref().is_none_or(|chunk| chunk.used + len > chunk.buffer.size()) {
            let chunk = Chunk { buffer: machine.chunks.take(machine, len)?, used: 0 };
            self.full.extend(self.open.replace(chunk).map(|chunk| chunk.buffer));
        }
        let Some(chunk) = &mut self.open else { return Err(refused("no memory to write from".to_owned())) };
        let at = chunk.used;
        let view = chunk.buffer.get_mapped_range_mut(at..at + len);
        let mut view = view.map_err(|error| refused(error.to_string()))?;
        view.slice(..bytes.len()).copy_from_slice(bytes);
        chunk.used = (at + len).next_multiple_of(wgpu::MAP_ALIGNMENT);
        Ok((chunk.buffer.clone(), at))
    }

    /// Hands the chunks to the device, right before what copies from them is submitted.
    pub(crate) fn finish(&mut self) {
        self.full.extend(self.open.take().map(|chunk| chunk.buffer));
        self.full.iter().for_each(wgpu::Buffer::unmap);
    }

    /// Asks for the chunks back, right after that.
    pub(crate) fn recall(&mut self, machine: &Arc<Machine>) {
        for buffer in self.full.drain(..).filter(|buffer| buffer.size() == CHUNK) {
            let (machine, mapped) = (Arc::downgrade(machine), buffer.clone());
            buffer.map_async(wgpu::MapMode::Write, .., move |outcome| {
                if let (Ok(()), Some(machine)) = (outcome, machine.upgrade()) {
                    machine.chunks.give(mapped);
                }
            });
        }
    }
}

impl Chunks {
    fn take(&self, machine: &Machine, len: u64) -> Result<wgpu::Buffer, Fault> {
        if len <= CHUNK
            && let Some(free) = self.free.lock().pop_front()
        {
            return Ok(free);
        }
        let descriptor = wgpu::BufferDescriptor {
            label: Some("dacapo upload"),
            size: len.max(CHUNK),
            usage: wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: true,
        };
        machine.create(Call::Write, |device| device.create_buffer(&descriptor))
    }

    fn give(&self, chunk: wgpu::Buffer) {
        let mut free = self.free.lock();
        if free.len() < KEPT {
            free.push_back(chunk);
        }
    }
}

fn refused(message: String) -> Fault {
    Fault::new(Call::Write, Severity::Call, message)
}
