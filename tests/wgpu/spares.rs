//! Devices of wgpu's that no test uses any more, where a driver can hang when they are destroyed: `dacapo::wgpu::Wgpu` says which.
//!
//! Threads of tests end all the time, so that there none is destroyed at all. It is kept for the next test that wants such a one,
//! since such a driver also has no room for a hundred.

use std::ffi::c_int;
use std::sync::mpsc::channel;
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use dacapo::wgpu::wgpu::{self, Adapter, Device, InstanceFlags, Limits, Queue};

/// A program's device, of an instance with these flags.
pub struct Parts {
    pub flags: InstanceFlags,
    pub adapter: Adapter,
    pub device: Device,
    pub queue: Queue,
}

static SPARES: Mutex<Vec<Parts>> = Mutex::new(Vec::new());
/// Those that are of no use any more.
static LOST: Mutex<Vec<Parts>> = Mutex::new(Vec::new());

/// A device with these limits that a test is done with.
pub fn take(flags: InstanceFlags, limits: &Limits) -> Option<Parts> {
    let mut spares = SPARES.lock().unwrap_or_else(PoisonError::into_inner);
    let index = spares.iter().position(|parts| parts.flags == flags && parts.device.limits() == *limits)?;
    Some(spares.swap_remove(index))
}

/// What keeps a device from being destroyed, if need be.
pub struct Keep(Option<Parts>);

impl Keep {
    pub fn of(parts: &Parts) -> Self {
        let Parts { flags, adapter, device, queue } = parts;
        let info = adapter.get_info();
        let hangs = info.backend == wgpu::Backend::Vulkan && info.driver == "NVIDIA";
        if hangs {
            static ONCE: Once = Once::new();
            // Now that the driver is there, so that this comes before whatever it does itself at the end.
            ONCE.call_once(|| assert_eq!(atexit(destroy), 0));
        }
        Keep(hangs.then(|| Parts {
            flags: *flags,
            adapter: adapter.clone(),
            device: device.clone(),
            queue: queue.clone(),
        }))
    }

    pub fn keeps(&self) -> bool {
        self.0.is_some()
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        let Some(parts) = self.0.take() else { return };
        let to = if is_lost(&parts.device) { &LOST } else { &SPARES };
        to.lock().unwrap_or_else(PoisonError::into_inner).push(parts);
    }
}

unsafe extern "C" {
    // SAFETY: declared as the C library has it; any function may be registered at any time.
    safe fn atexit(function: extern "C" fn()) -> c_int;
}

/// At the end of the process no test ends any more, and threads of the driver's that are left may crash it.
extern "C" fn destroy() {
    let (done, destroyed) = channel();
    let thread = std::thread::spawn(move || {
        for parts in [&SPARES, &LOST] {
            let parts = std::mem::take(&mut *parts.lock().unwrap_or_else(PoisonError::into_inner));
            for parts in parts {
                drop(parts);
                let _ = done.send(());
            }
        }
    });
    while destroyed.recv_timeout(Duration::from_secs(2)).is_ok() {}
    drop(thread);
}

fn is_lost(device: &Device) -> bool {
    // A buffer without a use is refused on every device that lives, and on none that does not.
    let usage = wgpu::BufferUsages::empty();
    let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
    drop(device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 4,
        usage,
        mapped_at_creation: false,
    }));
    pollster::block_on(scope.pop()).is_none()
}
