//! The tests, and what they share.

mod buffers;
mod support;
pub mod zoo;

pub use super::subject;
