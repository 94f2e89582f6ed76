//! Memory for the arguments that a kernel cannot be given where they are.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::backend::Fault;
use crate::backend::wgpu::Machine;
use crate::backend::wgpu::memory::WgpuMemory;

/// One buffer for one command after the other: what is encoded on one queue runs in its order, so that the next command finds
/// it free.
#[derive(Default)]
pub(crate) struct Scratch {
    memory: Option<Arc<WgpuMemory>>,
    used: u64,
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

    /// Memory with room for what was reserved.
    pub(crate) fn provide(&mut self, machine: &Machine) -> Result<Arc<WgpuMemory>, Fault> {
        const LEAST: u64 = 64 << 10;
        match &self.memory {
            Some(memory) if memory.bytes() >= self.used => Ok(memory.clone()),
            _ => {
                let bytes = self.used.max(LEAST).checked_next_power_of_two().unwrap_or(self.used);
                let bytes = bytes.min(machine.limits.max_buffer_size).max(self.used);
                let memory = Arc::new(WgpuMemory::allocate(machine, bytes as usize)?);
                self.memory = Some(memory.clone());
                Ok(memory)
            }
        }
    }
}
