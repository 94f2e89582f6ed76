//! Fresh memory shows nobody's old bytes: the device is filled with a canary in every kind of memory that it has, all of
//! it is let go of, and then every kind of fresh memory is read.

#[path = "canary/eager.rs"]
mod eager;
#[path = "canary/planted.rs"]
mod planted;
#[path = "canary/recorded.rs"]
mod recorded;
