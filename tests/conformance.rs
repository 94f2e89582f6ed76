//! One suite for every backend: what streams, graphs, kernels and memory promise, whatever they run on.
//!
//! A test names no backend. It asks its `subject` for a device, takes kernels from one zoo that has a source for each
//! backend, holds work up with a `Gate`, and asks for what may differ as a named fact. Where a backend has no device, its
//! tests print that they were skipped, and fail if `DACAPO_REQUIRE` names the backend. What needs a device that runs one
//! operation at a time, or that fails on demand, is tested on the host alone, beside this suite.

#![allow(
    clippy::duplicate_mod,
    reason = "every test has one source, which is compiled once for each backend"
)]

#[path = "conformance"]
mod host {
    mod alone;
    #[path = "host.rs"]
    pub mod subject;
    mod suite;
}

#[cfg(all(feature = "cuda", feature = "nvrtc"))]
#[path = "conformance"]
mod cuda {
    #[path = "cuda.rs"]
    pub mod subject;
    mod suite;
}

#[cfg(feature = "wgpu")]
#[path = "conformance"]
mod wgpu {
    #[path = "wgpu.rs"]
    pub mod subject;
    mod suite;
}

/// Who requires a backend that is not built in would believe that it was tested.
#[test]
fn every_backend_that_is_required_is_built_in() {
    let required = std::env::var("DACAPO_REQUIRE").unwrap_or_default();
    let cuda = cfg!(all(feature = "cuda", feature = "nvrtc"));
    assert!(
        cuda || !required.contains("cuda"),
        "the suite runs on CUDA with the features `cuda` and `nvrtc`"
    );
    assert!(
        cfg!(feature = "wgpu") || !required.contains("wgpu"),
        "the suite runs on wgpu with the feature `wgpu`"
    );
}
