//! The wgpu backend, on a real adapter: a GPU, or software such as lavapipe.
//!
//! Where there is none, each test prints that it was skipped; with `DACAPO_REQUIRE=wgpu` in the environment it fails.

#[path = "wgpu/adopt.rs"]
mod adopt;
#[path = "wgpu/indirect.rs"]
mod indirect;
#[path = "wgpu/kernels.rs"]
mod kernels;
#[path = "wgpu/loss.rs"]
mod loss;
#[path = "wgpu/opening.rs"]
mod opening;
#[path = "wgpu/order.rs"]
mod order;
#[path = "wgpu/runs.rs"]
mod runs;
#[path = "wgpu/scopes.rs"]
mod scopes;
#[path = "wgpu/support.rs"]
mod support;
#[path = "wgpu/texture.rs"]
mod texture;
#[path = "wgpu/waits.rs"]
mod waits;
