//! The wgpu device, for test binaries that also run without one.

#![allow(dead_code, reason = "every test binary uses a part of its own")]

use std::io::Write;
use std::sync::Once;

use dacapo::wgpu::Wgpu;
use dacapo::{Device, DeviceOptions, Error};

/// The fastest adapter's device, unless there is none and none is required: then it prints that the test was skipped.
pub fn device() -> Option<Device<Wgpu>> {
    device_with(DeviceOptions::new())
}

pub fn device_with(options: DeviceOptions<Wgpu>) -> Option<Device<Wgpu>> {
    match Device::open(options) {
        Ok(device) => Some(device),
        Err(error) => {
            let required = std::env::var("DACAPO_REQUIRE").is_ok_and(|what| what.contains("wgpu"));
            assert!(!required, "a wgpu device is required: {error}");
            println!("skipped: {error}");
            say_once(&error);
            None
        }
    }
}

/// Says that tests are skipped where the harness, which keeps to itself what a test prints, cannot hide it.
fn say_once(error: &Error) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let _ = writeln!(std::io::stderr(), "the tests on wgpu are skipped: {error}");
    });
}
