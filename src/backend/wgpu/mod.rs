//! The wgpu backend.

#![forbid(unsafe_code)]

pub(crate) mod open;
pub(crate) mod scope;
mod select;

pub use open::{Fallback, WgpuOptions};
