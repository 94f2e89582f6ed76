//! A long random life of one device: nothing is lost, nothing is mixed up, and it holds no more in the end than in the
//! middle. The same life on every backend.
//!
//! Several threads drive eight streams between them: buffers of every size and mode, parts and casts, copies and
//! kernels, reads of which some are dropped in flight, recordings that end in every way, replays from any stream, graphs
//! that go with replays in flight, refusals of the driver. Every buffer has a model that says which bytes it must
//! hold, and which it must refuse to give.
//!
//! It lasts 30 seconds on the host, 20 on wgpu and 10 on CUDA; `DACAPO_SOAK=long` asks for 10 minutes, and a number for as many
//! seconds. `DACAPO_SOAK_SEED` repeats the choices of a run that failed; how the threads interleave is up to the machine.

#![allow(clippy::duplicate_mod, reason = "the life has one source, which is compiled once for each backend")]

#[path = "soak"]
mod host {
    mod life;
    #[path = "host.rs"]
    pub mod subject;
}

#[cfg(all(feature = "cuda", feature = "nvrtc"))]
#[path = "soak"]
mod cuda {
    mod life;
    #[path = "cuda.rs"]
    pub mod subject;
}

#[cfg(feature = "wgpu")]
#[path = "soak"]
mod wgpu {
    mod life;
    #[path = "wgpu.rs"]
    pub mod subject;
}
