//! The frames example, held to what it promises: its own modules, on pictures small enough for a debug build.

#[path = "../../examples/frames/camera.rs"]
mod camera;
#[path = "../../examples/frames/film.rs"]
mod film;
#[path = "../../examples/frames/kernels.rs"]
mod kernels;
#[path = "../../examples/frames/picture.rs"]
mod picture;
#[path = "../../examples/frames/pipeline.rs"]
mod pipeline;
#[path = "../../examples/frames/reference.rs"]
mod reference;
#[path = "../../examples/frames/report.rs"]
mod report;

#[cfg(feature = "nvrtc")]
mod cuda;
#[cfg(any(feature = "nvrtc", feature = "wgpu"))]
mod devices;
mod files;
mod runs;
mod samples;
mod stages;
#[cfg(feature = "nvrtc")]
#[path = "../support_cuda/mod.rs"]
mod support_cuda;
#[cfg(feature = "wgpu")]
#[path = "../support_wgpu/mod.rs"]
mod support_wgpu;
#[cfg(feature = "wgpu")]
mod wgpu;
