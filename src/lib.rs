//! Record GPU work once, and replay it: the phases of a recording are types, and a replay is safe Rust.
//!
//! # The story in one page
//!
//! A [`Device`] has [`Stream`]s, and a stream is in a phase that is part of its type:
//!
//! ```text
//! Stream<NoCapture> --prepare--> Stream<Prepared> --begin--> Stream<Recording> --end--> Graph + Stream<NoCapture>
//!         ^                            | cancel                    | abort, drop, panic
//!         +----------------------------+---------------------------+
//! ```
//!
//! Work is put on a stream through [`Enqueue`], which every phase has: launches of [`Kernel`]s over [`Buffer`]s, copies,
//! fills, writes, allocations, host callbacks. In [`NoCapture`] and [`Prepared`] it executes. In [`Recording`] it is
//! appended to a list and nothing runs; `end` turns the list into a [`Graph`], and [`Graph::replay`] runs all of it, as
//! often as wanted, with whatever the buffers hold by then.
//!
//! ```
//! use dacapo::prelude::*;
//!
//! # fn main() -> dacapo::Result<()> {
//! let device = Device::host()?;
//! let double = Program::<(In<f32>, Out<f32>)>::new("double")
//!     .host(|(x, y), _grid| y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x))
//!     .load(&device)?;
//!
//! let mut stream = device.stream()?;
//! let mut x = stream.alloc::<f32>(4)?;
//! let mut y = stream.alloc::<f32>(4)?;
//!
//! // Phase by phase; `Stream::record` and `Stream::capture` are the shorter forms.
//! let mut recording = stream.prepare()?.begin()?;
//! recording.launch(&double, Grid::covering(4), (&x, &mut y))?;
//! let (mut graph, mut stream) = recording.end()?;
//!
//! for i in 1..=3u8 {
//!     stream.write(&mut x, &[f32::from(i); 4])?;
//!     graph.replay(&mut stream)?;
//!     assert_eq!(stream.read(&y)?, [2.0 * f32::from(i); 4]);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! What a phase forbids does not compile: `recording.read(&y)` and `stream.end()` are errors that name the missing step.
//!
//! # What waits for what
//!
//! Every operation behaves as if all operations ran one after the other, in the order in which they were enqueued; only
//! those that use the same bytes really wait for each other. Streams of one device may be driven by any number of threads.
//!
//! # What a failure leaves behind
//!
//! See [`Error`] and [`ErrorKind`]. An operation that fails taints the bytes that it was to write: reading them returns
//! the root cause, until they are written again in full.
//!
//! # Other libraries, and what no argument shows
//!
//! [`EnqueueRaw::raw`] makes one operation of what another library enqueues, on a backend that [has](HasRaw) queues for it.
//! Operations that share something which is no argument name a [`State`] token, and keep their order.
//!
//! # Kernels that cannot be checked
//!
//! A kernel of the host is safe code. Code for a GPU is promised to be right once, where it is given to its [`Program`], with
//! `unsafe`: for every launch that safe code can make. Lengths come from the library ([`Len`]), other limits from a check
//! ([`Program::check`]), and a kernel that can promise neither is launched with `unsafe` ([`UncheckedKernel`]).
//!
//! # Memory
//!
//! Each slot of a device has a pool. Freed bytes go back to it at once, together with the uses that are still in flight,
//! which their next owner waits for; pages go back to the driver when nothing needs them any more. What is alive is moved
//! together ([`Stream::compact`]) when memory runs out, except what a graph, an open window or a
//! [raw address](Buffer::raw) holds where it is. [`Device::memory_report`] tells where the bytes are.
//!
//! # Backends
//!
//! [`Host`] is always there: an asynchronous device without a GPU, with a stepped mode ([`Device::stepped`]) and injected
//! faults ([`Device::faults`]) for tests. With the feature `cuda` there is `Cuda`, for NVIDIA's GPUs, whose driver is looked
//! for when a device is opened; with the feature `wgpu` there is `Wgpu`, for the GPUs that wgpu reaches, and for software
//! that stands in for one. Code that is generic over [`Backend`] runs on every one.
#![deny(missing_docs, unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::multiple_unsafe_ops_per_block
    )
)]

mod access;
mod any_stream;
mod backend;
mod buffer;
mod callback;
mod capture;
mod device;
mod enqueue;
mod error;
mod failures;
mod fresh;
mod graph;
mod guest;
mod kernel;
mod launch;
mod layout;
mod memory;
mod one_thread;
mod order;
mod phase;
mod poison;
mod profile;
mod raw;
mod readback;
mod refused;
mod section;
mod state;
mod stream;
mod stream_id;
mod submit;
mod taint;
mod touch;
mod transfer;
mod upload;
mod wait;
mod work;

pub use any_stream::AnyStream;
#[cfg(feature = "cuda")]
pub use backend::cuda::Cuda;
pub use backend::host::Host;
pub use backend::launch_unchecked::LaunchUnchecked;
pub use backend::section::EnqueueRaw;
#[cfg(feature = "wgpu")]
pub use backend::wgpu::Wgpu;
pub use backend::{Backend, Call, Fault};
pub use buffer::{Buffer, Slice, SliceMut, Source, Target};
pub use capture::eviction::Eviction;
pub use capture::options::{CaptureOptions, Order};
pub use capture::status::{CaptureStatus, WindowId, WindowPhase};
pub use device::{Device, DeviceOptions, Zeroing};
pub use enqueue::Enqueue;
pub use error::{Abandonment, Error, ErrorKind, Hindrance, Result};
pub use graph::Graph;
pub use graph::inspect::NodeInfo;
pub use graph::ticket::{Ticket, TimedTicket};
pub use guest::Guest;
pub use kernel::{
    Arg, Args, Blocks, Checked, Dims, Element, Extent, Grid, GridLimit, In, InOut, IndirectGrid, Kernel, Len,
    Out, Param, Program, Signature, Unchecked, UncheckedKernel, Uniform,
};
pub use layout::Layout;
pub use memory::compaction::Compaction;
pub use memory::report::{
    AdoptedReport, ArenaReport, DedicatedReport, MemoryReport, PendingReport, PoolReport, StagingReport,
    TablesReport,
};
pub use memory::{AllocationMode, MemoryUsage};
pub use phase::{
    CanBegin, CanEnd, CanPrepare, CanReplay, CanWait, NoCapture, Phase, PhaseName, Prepared, Recording,
};
pub use profile::{Clock, Profile};
pub use raw::RawBuffer;
pub use readback::ReadFuture;
pub use refused::Refused;
pub use section::{Address, AddressMut, HasRaw, Overwrite, RawArg, RawArgs, SectionError};
pub use state::State;
pub use stream::Stream;
pub use stream_id::StreamId;
pub use touch::Touches;
pub use transfer::HostData;
pub use work::{Pass, Work};

/// The host backend: its options, its stepped mode, and the faults that it can be told to meet.
pub mod host {
    pub use crate::backend::fault::Severity;
    pub use crate::backend::host::stepper::Hold;
    pub use crate::backend::host::{Chunk, Faults, Host, HostOptions, Stepper, UnwrittenReads};
    /// A stream of the host backend.
    pub type Stream<P = crate::NoCapture> = crate::Stream<P, Host>;
}

/// The wgpu backend: its options, and the `wgpu` that it is made of.
#[cfg(feature = "wgpu")]
pub mod wgpu {
    pub use crate::backend::wgpu::{EnqueueTexture, Fallback, Texels, Wgpu, WgpuOptions};
    /// The crate whose devices, queues and buffers are taken here, in the version that they must come from.
    pub use ::wgpu;
    /// A stream of the wgpu backend.
    pub type Stream<P = crate::NoCapture> = crate::Stream<P, Wgpu>;
}

/// The CUDA backend: its options, and arguments of raw sections for `cudarc`.
#[cfg(feature = "cuda")]
pub mod cuda {
    pub use crate::backend::cuda::view::{View, ViewMut};
    pub use crate::backend::cuda::{Cuda, CudaOptions};
    #[cfg(feature = "nvrtc")]
    pub use crate::backend::cuda::{KernelCache, SourceText};
    /// The crate whose contexts, streams and slices are taken here, in the version that they must come from.
    pub use cudarc;
    /// A stream of the CUDA backend.
    pub type Stream<P = crate::NoCapture> = crate::Stream<P, Cuda>;
}

/// What a program that records and replays needs: `use dacapo::prelude::*;`.
pub mod prelude {
    pub use crate::{
        Backend, Buffer, Device, Enqueue, Graph, Grid, Host, In, InOut, Kernel, Len, NoCapture, Out,
        Prepared, Program, Recording, Slice, SliceMut, Stream, Touches, Uniform, Work,
    };
}

/// The README's example is a test too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
