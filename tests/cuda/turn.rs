//! The one device of the machine, which the tests of a binary use one after the other.

use std::cell::RefCell;
use std::io::Write;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use dacapo::cuda::Cuda;
use dacapo::{Device, DeviceOptions, Error};

thread_local! {
    static TURN: RefCell<Option<MutexGuard<'static, ()>>> = const { RefCell::new(None) };
}

/// Waits until no other test uses the device, for the rest of the calling thread.
///
/// To load code, and perhaps to free memory, the driver waits for all work of its context, and lets nobody in meanwhile: a
/// test that holds a stream up would never come to let it go.
fn take_turn() {
    static ONE: Mutex<()> = Mutex::new(());
    TURN.with_borrow_mut(|turn| {
        if turn.is_none() {
            *turn = Some(ONE.lock().unwrap_or_else(PoisonError::into_inner));
            assert!(
                eventually(|| threads() <= FORGOTTEN.load(Relaxed)),
                "the devices of the test before are gone"
            );
        }
    });
}

/// How many threads of devices stay for ever, at most.
static FORGOTTEN: AtomicUsize = AtomicUsize::new(0);

/// Forgets something of a device, which then stays for ever.
#[allow(dead_code, reason = "every test binary uses a part of its own")]
pub fn forget<T>(what: T) {
    FORGOTTEN.fetch_add(2, Relaxed);
    std::mem::forget(what);
}

/// How many threads of devices there are.
pub fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("dacapo-cuda")).count()
}

/// The device, unless there is none and none is required.
pub fn device_with(options: DeviceOptions<Cuda>) -> Option<Device<Cuda>> {
    take_turn();
    match Device::open(options) {
        Ok(device) => Some(device),
        Err(error) => {
            let required = std::env::var("DACAPO_REQUIRE").is_ok_and(|what| what.contains("cuda"));
            assert!(!required, "a CUDA device is required: {error}");
            println!("skipped: {error}");
            say_once(&error);
            None
        }
    }
}

/// Says that tests are skipped where the harness, which keeps to itself what a test prints, cannot hide it.
fn say_once(error: &Error) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let _ = writeln!(std::io::stderr(), "the tests on CUDA are skipped: {error}");
    });
}

/// Whether it comes true before a long time has passed.
pub fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(20) {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    false
}
