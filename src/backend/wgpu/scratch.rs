//! Memory for the arguments that a kernel cannot be given where they are.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::backend::wgpu::Machine;
use crate::backend::wgpu::memory::{WORD, WgpuMemory};
use crate::backend::{Call, Fault};

/// Bytes of three counts, in x, y and z.
pub(crate) const COUNTS: u64 = 3 * WORD;

/// One buffer for one command after the other: what is encoded on one queue runs in its order, so that the next command finds
/// it free.
#[derive(Default)]
pub(crate) struct Scratch {
    memory: Option<Arc<WgpuMemory>>,
    used: u64,
    counts: Option<Arc<WgpuMemory>>,
}

impl Scratch {
    /// All of it is free again, for the next command.
    pub(crate) fn restart(&mut self) {
        self.used = 0;
    }

    /// Where so many bytes will be, once there is memory for all.
    pub(crate) fn reserve(&mut self, machine: &Machine, bytes: u64) -> u64 {
        let at = self.used;
        self.used = (at + bytes).next_multiple_of(machine.alignment());
        at
    }

    /// Where the number of blocks of a dispatch can be.
    pub(crate) fn counts(&mut self, machine: &Machine) -> Result<Arc<WgpuMemory>, Fault> {
        if let Some(counts) = &self.counts {
            return Ok(counts.clone());
        }
        let descriptor = wgpu::BufferDescriptor {
            label: Some("dacapo counts of blocks"),
            size: COUNTS,
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::INDIRECT,
            mapped_at_creation: false,
        };
        let counts = machine.create(Call::Launch, |device| device.create_buffer(&descriptor))?;
        let counts = Arc::new(WgpuMemory::new(counts));
        self.counts = Some(counts.clone());
        Ok(counts)
    }

    /// Memory with room for what was reserved.
    pub(crate) fn provide(&mut self, machine: &Machine) -> Result<Arc<WgpuMemory>, Fault> {
        const LEAST: u64 = 64 << 10;
        match &self.memory {
            Some(memory) if memory.bytes() >= self.used => Ok(memory.clone()),
            _ => {
                let bytes = self.used.max(LEAST).checked_next_power_of_two().unwrap_or(self.used);
                let bytes = bytes.min(machine.limits.max_buffer_size).max(self.used);
                // What it replaces may be bound in groups that are kept.
                let memory = Arc::new(WgpuMemory::allocate(machine, bytes as usize)?.told(&machine.me));
                self.memory = Some(memory.clone());
                Ok(memory)
            }
        }
    }
}
