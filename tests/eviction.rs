//! Windows that somebody else closes, and what the status record says of every window to whoever asks.

#[path = "eviction/hold.rs"]
mod hold;
#[path = "eviction/races.rs"]
mod races;
mod support;
#[path = "eviction/views.rs"]
mod views;
#[path = "eviction/waits.rs"]
mod waits;

use std::thread;

use dacapo::prelude::*;
use dacapo::{Error, Eviction, WindowId};

/// Elements of a small buffer.
pub const N: usize = 64;

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
