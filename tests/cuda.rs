//! The CUDA backend, on a real device.
//!
//! Where there is none, each test prints that it was skipped; with `DACAPO_REQUIRE=cuda` in the environment it fails.

#[path = "cuda/adopt.rs"]
mod adopt;
#[path = "cuda/functions.rs"]
mod functions;
#[path = "cuda/guest.rs"]
mod guest;
#[cfg(unix)]
#[path = "cuda/kernel_cache.rs"]
mod kernel_cache;
#[path = "cuda/kernels.rs"]
mod kernels;
#[path = "cuda/limits.rs"]
mod limits;
#[path = "cuda/memory.rs"]
mod memory;
#[path = "cuda/neighbours.rs"]
mod neighbours;
#[path = "cuda/opening.rs"]
mod opening;
#[path = "cuda/order.rs"]
mod order;
#[path = "cuda/profile.rs"]
mod profile;
#[path = "cuda/raw.rs"]
mod raw;
#[path = "cuda/raw_blas.rs"]
mod raw_blas;
#[path = "cuda/raw_failures.rs"]
mod raw_failures;
#[path = "cuda/streams.rs"]
mod streams;
#[path = "cuda/support.rs"]
mod support;
#[path = "cuda/threads.rs"]
mod threads;
#[path = "cuda/windows.rs"]
mod windows;
