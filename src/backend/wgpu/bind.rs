//! Bind groups, which are made once for the same kernel on the same ranges.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::num::NonZeroU64;

use smallvec::SmallVec;

use crate::backend::wgpu::Machine;
use crate::backend::wgpu::code::WgpuCode;
use crate::backend::wgpu::memory::WgpuMemory;
use crate::backend::wgpu::scope::{listening, scoped_briefly};
use crate::backend::{Call, Fault};

/// A range of a buffer, as a bind group has it.
#[derive(Clone, Copy)]
pub(crate) struct Bound<'r> {
    pub(crate) memory: &'r WgpuMemory,
    pub(crate) at: u64,
    pub(crate) len: u64,
}

/// The bind groups of the launches to come: those used lately, at most so many.
///
/// Two generations: what the older one still has is looked up there, and moves on; when the younger one is full, the older one
/// is dropped. So nothing is sorted or counted on the way of a launch.
pub(crate) struct Groups {
    most: usize,
    young: HashMap<Key, wgpu::BindGroup>,
    old: HashMap<Key, wgpu::BindGroup>,
}

/// The kernel, then each range: memory, start and length.
type Key = SmallVec<[u64; 13]>;

impl Groups {
    pub(crate) fn new(most: usize) -> Self {
        Groups { most, young: HashMap::new(), old: HashMap::new() }
    }

    /// The group that binds `ranges` for `code`, in their order.
    pub(crate) fn find(
        &mut self,
        machine: &Machine,
        code: &WgpuCode,
        ranges: &[Bound<'_>],
    ) -> Result<wgpu::BindGroup, Fault> {
        if self.most == 0 {
            return make(machine, code, ranges);
        }
        let mut key = Key::new();
        key.push(code.id);
        ranges.iter().for_each(|range| key.extend([range.memory.id, range.at, range.len]));
        if let Some(group) = self.young.get(&key) {
            return Ok(group.clone());
        }
        let group = match self.old.remove(&key) {
            Some(group) => group,
            None => make(machine, code, ranges)?,
        };
        if self.young.len() >= self.most.div_ceil(2) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, group.clone());
        Ok(group)
    }

    /// Lets go of what binds the memory of this id.
    pub(crate) fn forget(&mut self, id: u64) {
        let binds = |key: &Key| key.iter().skip(1).step_by(3).any(|bound| *bound == id);
        self.young.retain(|key, _| !binds(key));
        self.old.retain(|key, _| !binds(key));
    }
}

fn make(machine: &Machine, code: &WgpuCode, ranges: &[Bound<'_>]) -> Result<wgpu::BindGroup, Fault> {
    let entries: SmallVec<[wgpu::BindGroupEntry<'_>; 8]> = ranges.iter().enumerate().map(entry).collect();
    let descriptor = wgpu::BindGroupDescriptor { label: None, layout: &code.layout, entries: &entries };
    let make = || machine.device.create_bind_group(&descriptor);
    match machine.hears_errors() {
        true => listening(Call::Launch, make),
        false => scoped_briefly(&machine.device, Call::Launch, make),
    }
}

fn entry<'r>((binding, range): (usize, &Bound<'r>)) -> wgpu::BindGroupEntry<'r> {
    let resource = wgpu::BufferBinding {
        buffer: &range.memory.buffer,
        offset: range.at,
        size: NonZeroU64::new(range.len),
    };
    wgpu::BindGroupEntry { binding: binding as u32, resource: wgpu::BindingResource::Buffer(resource) }
}
