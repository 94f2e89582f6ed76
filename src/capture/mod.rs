//! Recording: windows, what they gather, who may see and who may end them.

#![forbid(unsafe_code)]

pub(crate) mod constants;
pub(crate) mod early;
pub(crate) mod eviction;
pub(crate) mod footprints;
pub(crate) mod gate;
#[cfg(all(test, loom))]
mod models;
pub(crate) mod options;
pub(crate) mod recorder;
pub(crate) mod seal;
pub(crate) mod status;
pub(crate) mod sync;
pub(crate) mod window;
