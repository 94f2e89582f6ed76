//! Failures that real users met elsewhere, by the ids of their cases.

mod edges;
mod failures;
mod shapes;
mod sharp_edges;
mod threads;
mod values;
mod windows;

use super::{support, zoo};
