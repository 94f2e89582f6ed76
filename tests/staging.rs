//! Host memory on its way to and from the device, where the driver fails or is stepped: case HOST-04.

#[path = "staging/bounds.rs"]
mod bounds;
#[path = "staging/lifetimes.rs"]
mod lifetimes;
#[path = "staging/pinned.rs"]
mod pinned;
#[path = "staging/reads.rs"]
mod reads;
#[path = "staging/taints.rs"]
mod taints;
// What the case tests share.
mod support_objects;
