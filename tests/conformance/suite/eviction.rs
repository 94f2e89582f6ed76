//! Windows that somebody else closes, and what the status record says of every window to whoever asks.

mod hold;
mod races;
mod views;
mod waits;
mod watcher;

use std::thread;

use dacapo::{Error, Eviction, WindowId};

use super::support;
use support::Device;

/// Evicts from a thread that is called `janitor`.
pub fn evict(device: &Device, window: WindowId) -> Result<Eviction, Error> {
    thread::scope(|scope| {
        let janitor = thread::Builder::new().name("janitor".into());
        janitor.spawn_scoped(scope, || device.evict(window)).unwrap().join().unwrap()
    })
}

/// Whether `error` says that `window` was evicted.
pub fn is_eviction_of(error: &Error, window: WindowId) -> bool {
    matches!(error, Error::Evicted { window: named, .. } if *named == window)
}
