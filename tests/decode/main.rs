//! The decode example, held to what it promises: its own modules, on sequences short enough for a debug build.

#[path = "../../examples/decode/arithmetic.rs"]
mod arithmetic;
#[path = "../../examples/decode/kernels.rs"]
mod kernels;
#[path = "../../examples/decode/model.rs"]
mod model;
#[path = "../../examples/decode/reference.rs"]
mod reference;
#[path = "../../examples/decode/report.rs"]
mod report;
#[path = "../../examples/decode/session.rs"]
mod session;
#[path = "../../examples/decode/step.rs"]
mod step;

#[cfg(feature = "nvrtc")]
mod cuda;
#[cfg(any(feature = "nvrtc", feature = "wgpu"))]
mod devices;
mod parts;
mod runs;
mod samples;
#[cfg(feature = "nvrtc")]
#[path = "../support_cuda/mod.rs"]
mod support_cuda;
#[cfg(feature = "wgpu")]
#[path = "../support_wgpu/mod.rs"]
mod support_wgpu;
#[cfg(feature = "wgpu")]
mod wgpu;
