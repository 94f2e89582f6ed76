//! What streams promise beyond the order of their work: captures that run a closure, refused transitions, waits, futures,
//! where memory comes from, and windows that wander between threads.

mod captures;
mod flight;
mod futures;
mod memory;
mod refused;
mod waits;
mod windows;

use super::{support, zoo};
