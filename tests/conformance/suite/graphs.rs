//! Recording, planning and graphs, as their users see them.

mod arena;
mod edges;
mod embedding;
mod eviction;
mod joining;
mod nodes;
mod random;
mod replays;
mod status;
mod zeroing;

use super::{support, zoo};
