//! The CUDA backend, on a real device.
//!
//! Where there is none, each test prints that it was skipped; with `DACAPO_REQUIRE=cuda` in the environment it fails.
//!
//! These tests and the conformance suite run under the checkers of NVIDIA's toolkit, too:
//!
//! ```sh
//! export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="compute-sanitizer --report-api-errors no --tool memcheck"
//! DACAPO_REQUIRE=cuda DACAPO_PROPTEST_CASES=20 \
//!     cargo test --features cuda,nvrtc --test cuda --test conformance -- --test-threads 1 --skip host::
//! ```
//!
//! - That a call is refused is no error: some are made to find out what the driver has.
//! - `memcheck` knows the driver's allocations, which are pages: what strays from one buffer into the next is not seen.
//! - `racecheck` wants `--racecheck-report all`. Its usual report misses what nobody waits for by a call of the driver, and
//!   the library waits without one.
//! - The checker waits for the whole context where a module is unloaded, which ends all captures, those of others as well:
//!   `str_01_nothing_that_we_do..`, `thr_01_a_foreign_capture..` and `inside_a_section_programs_are_loaded..` fail.
//! - It waits for a stream that is destroyed, which may wait for a gate: `what_the_slices_stream_was_given..` and
//!   `what_other_streams_did_with_the_slice..` fail, and so may other tests with gates.
//! - Tests that launch 20,000 times take many minutes.

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
