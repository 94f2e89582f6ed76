//! The tests, and what they share.

mod buffers;
mod graphs;
mod streams;
mod support;
pub mod zoo;

pub use super::subject;
