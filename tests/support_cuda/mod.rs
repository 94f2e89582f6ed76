//! The CUDA device, for test binaries that also run without one.

use dacapo::cuda::Cuda;
use dacapo::prelude::*;

/// The machine's first device, unless there is none and none is required: then it prints that the test was skipped.
pub fn device() -> Option<Device<Cuda>> {
    match Device::<Cuda>::new(0) {
        Ok(device) => Some(device),
        Err(error) => {
            let required = std::env::var("DACAPO_REQUIRE").is_ok_and(|what| what.contains("cuda"));
            assert!(!required, "a CUDA device is required: {error}");
            println!("skipped: {error}");
            None
        }
    }
}
