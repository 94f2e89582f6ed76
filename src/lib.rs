//! Record GPU work once, and replay it: the phases of a recording are types, and a replay is safe Rust.
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
mod graph;
mod kernel;
mod memory;
mod order;
mod phase;
mod poison;
mod profile;
mod readback;
mod refused;
mod stream;
mod stream_id;
mod submit;
mod taint;
mod touch;
mod work;

pub use any_stream::AnyStream;
pub use backend::host::Host;
pub use backend::{Backend, Call, Fault};
pub use buffer::{Buffer, Slice, SliceMut, Source, Target};
pub use capture::eviction::Eviction;
pub use capture::options::{CaptureOptions, Order};
pub use capture::status::{CaptureStatus, WindowId, WindowPhase};
pub use device::{Device, DeviceOptions, Zeroing};
pub use enqueue::Enqueue;
pub use error::{Abandonment, Error, ErrorKind, Result};
pub use graph::Graph;
pub use graph::inspect::NodeInfo;
pub use graph::ticket::Ticket;
pub use kernel::{
    Arg, Args, Dims, Element, Extent, Grid, GridLimit, In, InOut, Kernel, Out, Param, Program, Signature,
};
pub use memory::{AllocationMode, MemoryUsage};
pub use phase::{
    CanBegin, CanEnd, CanPrepare, CanReplay, CanWait, NoCapture, Phase, PhaseName, Prepared, Recording,
};
pub use profile::Profile;
pub use readback::ReadFuture;
pub use refused::Refused;
pub use stream::Stream;
pub use stream_id::StreamId;
pub use touch::Touches;
pub use work::{Pass, Work};

/// The host backend: its options, its stepped mode, and the faults that it can be told to meet.
pub mod host {
    pub use crate::backend::fault::Severity;
    pub use crate::backend::host::stepper::Hold;
    pub use crate::backend::host::{Chunk, Faults, Host, HostOptions, Stepper, UnwrittenReads};
    /// A stream of the host backend.
    pub type Stream<P = crate::NoCapture> = crate::Stream<P, Host>;
}

/// What a program that records and replays needs: `use dacapo::prelude::*;`.
pub mod prelude {
    pub use crate::{
        Backend, Buffer, Device, Enqueue, Graph, Grid, Host, In, InOut, Kernel, Out, Program, Stream,
        Touches, Work,
    };
}
