//! Host memory on its way to and from the device: cases HOST-01, 02 and 04, SHAPE-01 and 04, WGPU-08, and E02.

#[path = "staging/bounds.rs"]
mod bounds;
#[path = "staging/lifetimes.rs"]
mod lifetimes;
#[path = "staging/pinned.rs"]
mod pinned;
#[path = "staging/pitched.rs"]
mod pitched;
#[path = "staging/reads.rs"]
mod reads;
#[path = "staging/taints.rs"]
mod taints;
// What the case tests share.
mod support_objects;
