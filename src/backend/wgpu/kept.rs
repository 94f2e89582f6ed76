//! Devices of wgpu's that nobody uses any more, kept for whoever opens the next one: where to destroy them can hang.
//!
//! NVIDIA's driver for Linux (seen with 580.159.04, by Vulkan alone as well) can deadlock where one thread of a process destroys a
//! device while another one ends. The first holds a lock of the driver's, and waits for a thread of the driver's to end. That one
//! spins until no other thread is at its end; and the other one, if it has called Vulkan, wants the lock before its end. When the
//! threads of a program end is not ours to say, so that the only way is to destroy nothing.
//!
//! The price is what the driver needs, some 50 MiB and four threads a device, for as many devices as were ever open at once. Opened
//! again, they are there at once. At the end of the process they are destroyed after all: processes that left dozens to the driver
//! were seen to crash there, now and then, and its threads, which may then outlive what they need, may be why.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use parking_lot::Mutex;
use wgpu::{AdapterInfo, Backend};

use super::{Machine, scope};

static KEPT: Kept = Kept(Mutex::new(Vec::new()));

struct Kept(Mutex<Vec<(wgpu::Device, wgpu::Queue)>>);

/// A device on this adapter that was kept and is as good as new.
pub(super) fn take(adapter: &AdapterInfo) -> Option<(wgpu::Device, wgpu::Queue)> {
    KEPT.take(adapter)
}

/// Lets go of all that is left of a device; of what is wgpu's, only if that may be destroyed.
pub(super) fn let_go(machine: Arc<Machine>) {
    let kept = is_to_be_kept(&machine).then(|| (machine.device.clone(), machine.queue.clone()));
    // Before the next one finds it.
    drop(machine);
    KEPT.0.lock().extend(kept);
}

/// Destroys what is kept, at the end of the process: on a thread of its own, which is waited for no longer than so long a device,
/// since a thread of the program's may be ending even now.
pub(crate) fn end(longest: Duration) {
    let Some(mut kept) = KEPT.0.try_lock_for(longest) else { return };
    let devices = std::mem::take(&mut *kept);
    drop(kept);
    let (count, (done, destroyed)) = (devices.len(), channel());
    let destroy = move || {
        devices.into_iter().try_for_each(|device| {
            drop(device);
            done.send(())
        })
    };
    if count > 0 && std::thread::Builder::new().spawn(destroy).is_ok() {
        // Whatever became of it, the process ends.
        _ = (0..count).try_for_each(|_| destroyed.recv_timeout(longest));
    }
}

impl Kept {
    fn take(&self, adapter: &AdapterInfo) -> Option<(wgpu::Device, wgpu::Queue)> {
        let mut kept = self.0.lock();
        let index = kept.iter().position(|(device, _)| device.adapter_info() == *adapter)?;
        let (device, queue) = kept.swap_remove(index);
        drop(kept);
        (!scope::is_lost(&device)).then_some((device, queue))
    }
}

/// Whether the device can be opened again: nobody else ever had it, and it works.
fn is_to_be_kept(machine: &Machine) -> bool {
    deadlocks(&machine.device.adapter_info())
        && machine.opened.is_ours()
        && !machine.is_lent()
        && !machine.poison.is_set()
}

/// Whether the driver is the one that is spoken of above.
pub(super) fn deadlocks(adapter: &AdapterInfo) -> bool {
    cfg!(target_os = "linux") && adapter.backend == Backend::Vulkan && adapter.driver == "NVIDIA"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody wants another adapter's device, one that somebody else has, or one that is lost.
    #[test]
    fn a_kept_device_is_found_once_by_its_adapter_unless_it_is_lost() {
        let Some((device, queue, _)) = scope::tests::device() else { return };
        let adapter = device.adapter_info();
        let other = AdapterInfo { name: "another".to_owned(), ..adapter.clone() };
        let kept = Kept(Mutex::new(vec![(device.clone(), queue.clone())]));
        assert!(kept.take(&other).is_none());
        let (taken, its) = kept.take(&adapter).unwrap();
        assert!(taken == device && its == queue);
        assert!(kept.take(&adapter).is_none());
        kept.0.lock().push((taken, its));
        device.destroy();
        assert!(kept.take(&adapter).is_none());
    }
}
