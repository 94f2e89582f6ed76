//! Small constant bytes that shaders read: scalars, where a device has no immediates, and patterns.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::backend::wgpu::Machine;
use crate::backend::wgpu::memory::WgpuMemory;
use crate::backend::wgpu::scope::scoped;
use crate::backend::{Call, Fault};

/// Bytes by their contents.
///
/// A place is written once and never again, so that the write, which the queue does before anything that is submitted later,
/// overtakes nobody. Pages that are full and forgotten live on in what refers to them.
pub(crate) struct Constants {
    usage: wgpu::BufferUsages,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: HashMap<Box<[u8]>, Constant>,
    /// Bytes of all that is known.
    bytes: usize,
    open: Option<Arc<WgpuMemory>>,
    used: u64,
}

/// Where constant bytes are.
#[derive(Clone)]
pub(crate) struct Constant {
    pub(crate) page: Arc<WgpuMemory>,
    pub(crate) at: u32,
}

const PAGE: u64 = 64 << 10;
/// So many different contents are remembered; then all are forgotten, since which ones come back cannot be told.
const KNOWN: usize = 4096;
/// The same for their bytes.
const KNOWN_BYTES: usize = 4 << 20;

impl Constants {
    pub(crate) fn new(usage: wgpu::BufferUsages) -> Self {
        Constants { usage, state: Mutex::default() }
    }

    /// Where `bytes` are, a multiple of 4 and of at most 64 KiB; every place is a multiple of `step`.
    pub(crate) fn find(&self, machine: &Machine, bytes: &[u8], step: u64) -> Result<Constant, Fault> {
        let mut state = self.state.lock();
        if let Some(known) = state.known.get(bytes) {
            return Ok(known.clone());
        }
        let len = bytes.len() as u64;
        let (page, at) = match &state.open {
            Some(page) if state.used + len <= PAGE => (page.clone(), state.used),
            _ => {
                let page = Arc::new(self.page(machine, len)?);
                state.open = Some(page.clone());
                (page, 0)
            }
        };
        scoped(&machine.device, Call::Launch, || machine.queue.write_buffer(&page.buffer, at, bytes))?;
        state.used = (at + len).next_multiple_of(step);
        let constant = Constant { page, at: u32::try_from(at).unwrap_or(0) };
        if state.known.len() >= KNOWN || state.bytes >= KNOWN_BYTES {
            state.known.clear();
            state.bytes = 0;
        }
        state.bytes += bytes.len();
        state.known.insert(bytes.into(), constant.clone());
        Ok(constant)
    }

    fn page(&self, machine: &Machine, len: u64) -> Result<WgpuMemory, Fault> {
        let descriptor = wgpu::BufferDescriptor {
            label: Some("dacapo constants"),
            size: PAGE.max(len),
            usage: self.usage | wgpu::BufferUsages::COPY_DST,
            // Zeros from the start. Else the first submission that binds the page clears what nobody has written yet; and what is
            // written while that is under way, on another thread, goes before it to the device, and is cleared.
            mapped_at_creation: true,
        };
        let buffer = machine.create(Call::Launch, |device| device.create_buffer(&descriptor))?;
        scoped(&machine.device, Call::Launch, || buffer.unmap())?;
        Ok(WgpuMemory::known_to(&machine.me, buffer))
    }
}
