//! Failures that real users met elsewhere, by the ids of their cases.

mod shapes;
mod sharp_edges;
mod values;

use super::{support, zoo};
