//! The device's clock, where the adapter lets it be asked.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::backend::command::Stamp;
use crate::backend::fault::Severity;
use crate::backend::wgpu::Machine;
use crate::backend::wgpu::landing::Arrival;
use crate::backend::wgpu::notice::Notice;
use crate::backend::wgpu::scope::scoped;
use crate::backend::{Call, Fault};
use crate::error::Error;

/// What of a device is needed to note times between the commands of an encoder.
pub(crate) const FEATURES: wgpu::Features =
    wgpu::Features::TIMESTAMP_QUERY.union(wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS);

/// Where the device writes one time, and the host reads it.
pub(crate) struct Probe {
    set: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    pad: wgpu::Buffer,
}

/// Probes that are free, and what ties the device's clock to the host's.
#[derive(Default)]
pub(crate) struct Clockwork {
    free: Mutex<Vec<Probe>>,
    /// A time of the device's, and when on the host it was first heard of.
    anchor: Mutex<Option<(u64, Instant)>>,
}

/// A time on its way to the host.
pub(crate) struct Reading {
    at: Option<Arc<Stamp>>,
    probe: Option<Probe>,
}

/// Bytes of one time.
const TICKS: u64 = 8;
/// So many free probes are kept.
const KEPT: usize = 64;

impl Clockwork {
    /// Where the next time can be noted.
    pub(crate) fn probe(&self, machine: &Machine) -> Result<Probe, Fault> {
        if let Some(free) = self.free.lock().pop() {
            return Ok(free);
        }
        let buffer = |usage| wgpu::BufferDescriptor {
            label: Some("dacapo time"),
            size: wgpu::QUERY_RESOLVE_BUFFER_ALIGNMENT,
            usage,
            mapped_at_creation: false,
        };
        let resolved = buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC);
        let pad = buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
        let set =
            wgpu::QuerySetDescriptor { label: Some("dacapo time"), ty: wgpu::QueryType::Timestamp, count: 1 };
        machine.create(Call::Stamp, |device| Probe {
            set: device.create_query_set(&set),
            resolved: device.create_buffer(&resolved),
            pad: device.create_buffer(&pad),
        })
    }

    fn give(&self, machine: &Machine, probe: Probe) {
        let unmapped = scoped(&machine.device, Call::Stamp, || probe.pad.unmap());
        let mut free = self.free.lock();
        if unmapped.is_ok() && free.len() < KEPT {
            free.push(probe);
        }
    }

    /// When the device's clock showed `ticks`, by the host's.
    fn instant(&self, machine: &Machine, ticks: u64) -> Instant {
        let mut anchor = self.anchor.lock();
        let (first, when) = *anchor.get_or_insert_with(|| (ticks, Instant::now()));
        let period = f64::from(machine.queue.get_timestamp_period());
        let nanoseconds = |ticks: u64| Duration::from_nanos((ticks as f64 * period) as u64);
        match ticks.checked_sub(first) {
            Some(since) => when.checked_add(nanoseconds(since)).unwrap_or(when),
            None => when.checked_sub(nanoseconds(first - ticks)).unwrap_or(when),
        }
    }
}

impl Probe {
    /// Makes the device note the time between what was encoded and what will be.
    pub(crate) fn encode(self, encoder: &mut wgpu::CommandEncoder, at: &Arc<Stamp>) -> Reading {
        encoder.write_timestamp(&self.set, 0);
        encoder.resolve_query_set(&self.set, 0..1, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.pad, 0, Some(TICKS));
        Reading { at: Some(at.clone()), probe: Some(self) }
    }
}

impl Reading {
    /// Asks wgpu for the time, once what notes it was submitted.
    pub(crate) fn request(self, machine: &Arc<Machine>, notice: Arc<Notice>) {
        let Some(pad) = self.probe.as_ref().map(|probe| probe.pad.clone()) else { return };
        let machine = Arc::downgrade(machine);
        pad.map_async(wgpu::MapMode::Read, .., move |outcome| {
            if let Some(machine) = machine.upgrade() {
                machine.arrivals.push(Arrival::Ticks(self, outcome));
            }
            // After that, so that nothing counts as done before.
            drop(notice);
        });
    }

    pub(crate) fn land(mut self, machine: &Machine, outcome: Result<(), wgpu::BufferAsyncError>) {
        let (Some(at), Some(probe)) = (self.at.take(), self.probe.take()) else { return };
        let refused = |message: String| Fault::new(Call::Stamp, Severity::Call, message);
        let ticks = outcome.map_err(|error| refused(error.to_string())).and_then(|()| {
            let view = probe.pad.get_mapped_range(..TICKS).map_err(|error| refused(error.to_string()))?;
            Ok(bytemuck::pod_read_unaligned::<u64>(&view))
        });
        *at.lock() = Some(match ticks {
            Ok(ticks) => Ok(machine.clockwork.instant(machine, ticks)),
            Err(fault) => {
                machine.check(Call::Stamp);
                Err(machine.poison.error().unwrap_or_else(|| machine.poison.absorb(fault)))
            }
        });
        machine.clockwork.give(machine, probe);
    }
}

impl Drop for Reading {
    /// wgpu may drop a callback that it never calls.
    fn drop(&mut self) {
        if let Some(at) = self.at.take() {
            let reason = "the device gave up its queue";
            *at.lock() = Some(Err(Error::Unsupported { operation: "profile", reason }));
        }
    }
}
