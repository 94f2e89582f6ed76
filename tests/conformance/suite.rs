//! The tests, and what they share.

mod any_stream;
mod buffers;
mod callbacks;
pub mod callbacks_inside;
mod cases;
mod eviction;
mod graphs;
mod guarantees;
mod kernels;
pub mod memory;
mod ordering;
pub mod property;
mod streams;
pub mod support;
mod taint;
mod transfers;
pub mod zoo;

pub use super::subject;
