//! The end of the process, which takes the driver away under the threads of a device.

#![allow(unsafe_code, reason = "a function of the C library")]

use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard};

/// Read by threads of ours while they call the driver; written by the end of the process, once and for good.
static DRIVER: RwLock<()> = RwLock::new(());

unsafe extern "C" {
    // SAFETY: declared as the C library has it; any function may be registered at any time.
    safe fn atexit(function: extern "C" fn()) -> c_int;
}

/// While it lives, the process does not end under the calling thread. Blocks for ever once it ends.
pub(crate) fn hold() -> RwLockReadGuard<'static, ()> {
    DRIVER.read()
}

/// From here on, the end of the process waits for [`hold`]s first. After a driver was initialised, so that this comes
/// before whatever that driver does at the end; `driver` is the driver's own.
pub(crate) fn prepare(driver: &Once) {
    // Where there is no room for it, the process ends as it would without.
    driver.call_once(|| _ = atexit(stop));
}

/// [`prepare`], once more: of a library that was loaded since, the end of the process would else come first, under threads
/// that drop what is that library's.
///
/// What is registered stays so, and nobody tells what was loaded when: done for the first of these calls, the second, the
/// fourth, and so on.
#[cfg(feature = "cuda")]
pub(crate) fn renew() {
    use std::sync::atomic::AtomicU64;
    static CALLS: AtomicU64 = AtomicU64::new(0);
    // Relaxed: a count, and nothing else.
    if (CALLS.fetch_add(1, Ordering::Relaxed) + 1).is_power_of_two() {
        _ = atexit(stop);
    }
}

extern "C" fn stop() {
    /// A call of the driver's that takes longer may wait for work that never ends.
    const LONGEST: Duration = Duration::from_secs(1);
    static STOPPED: AtomicBool = AtomicBool::new(false);
    // Relaxed: only the thread that ends the process comes here.
    if STOPPED.swap(true, Ordering::Relaxed) {
        return;
    }
    let Some(held) = DRIVER.try_write_for(LONGEST) else { return };
    std::mem::forget(held);
    #[cfg(feature = "wgpu")]
    crate::backend::wgpu::kept::end(LONGEST);
}
