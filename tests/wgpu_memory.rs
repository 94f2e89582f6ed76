//! How much memory the wgpu backend takes, which is seen on the whole process: no other tests may run in it, nor two of these at
//! once.

#[path = "wgpu_memory/bounds.rs"]
mod bounds;
#[path = "wgpu_memory/life.rs"]
mod life;
#[path = "wgpu/support.rs"]
mod support;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The memory of this process, while no other test changes it.
struct Resident(#[allow(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Resident {
    fn alone() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        Resident(ALONE.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// In bytes, where the system tells it.
    fn bytes(&self) -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok());
        pages.unwrap_or(0) * 4096
    }
}
