//! What a driver says when it refuses.

#![forbid(unsafe_code)]

use std::borrow::Cow;

/// A kind of call of the driver, as [`Faults`](crate::host::Faults) counts them and errors name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Call {
    /// Opening the device or one of its queues.
    Open,
    /// Allocating memory.
    Allocate,
    /// Giving memory back.
    Free,
    /// Pinning host memory, through which transfers go.
    Pin,
    /// Loading a kernel.
    Load,
    /// Enqueueing a launch.
    Launch,
    /// Enqueueing a copy within the device.
    Copy,
    /// Enqueueing a fill.
    Fill,
    /// Enqueueing a write from the host.
    Write,
    /// Enqueueing a read to the host.
    Read,
    /// Enqueueing a host callback.
    HostCall,
    /// Capturing or enqueueing a raw section.
    Section,
    /// Enqueueing a time stamp.
    Stamp,
    /// Making one queue wait for another.
    Wait,
    /// Starting a recording.
    Begin,
    /// Ending a recording.
    End,
    /// Sealing (instantiating) a graph.
    Seal,
    /// Enqueueing a replay.
    Replay,
    /// Waiting on the host.
    Synchronize,
    /// Running what was enqueued: a fault that the device itself met.
    Execute,
}

impl Call {
    /// Every kind of call, in the order of their declaration.
    pub const ALL: [Call; 20] = [
        Call::Open,
        Call::Allocate,
        Call::Free,
        Call::Pin,
        Call::Load,
        Call::Launch,
        Call::Copy,
        Call::Fill,
        Call::Write,
        Call::Read,
        Call::HostCall,
        Call::Section,
        Call::Stamp,
        Call::Wait,
        Call::Begin,
        Call::End,
        Call::Seal,
        Call::Replay,
        Call::Synchronize,
        Call::Execute,
    ];
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Call::Open => "opening the device",
            Call::Allocate => "an allocation",
            Call::Free => "a release of memory",
            Call::Pin => "pinning host memory",
            Call::Load => "loading a kernel",
            Call::Launch => "a launch",
            Call::Copy => "a copy",
            Call::Fill => "a fill",
            Call::Write => "a write",
            Call::Read => "a read",
            Call::HostCall => "a host callback",
            Call::Section => "a raw section",
            Call::Stamp => "a time stamp",
            Call::Wait => "a wait of one queue for another",
            Call::Begin => "the start of a recording",
            Call::End => "the end of a recording",
            Call::Seal => "sealing a graph",
            Call::Replay => "a replay",
            Call::Synchronize => "a wait of the host",
            Call::Execute => "running what was enqueued",
        })
    }
}

/// One refusal of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    call: Call,
    severity: Severity,
    message: Cow<'static, str>,
}

/// How far a fault reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// This call only.
    Call,
    /// This call, for want of memory: worth a retry once some was given back.
    Memory,
    /// The device: no later call can succeed.
    Sticky,
}

impl Fault {
    /// A fault of one call.
    pub fn new(call: Call, severity: Severity, message: impl Into<Cow<'static, str>>) -> Self {
        Fault { call, severity, message: message.into() }
    }

    /// The call that met it.
    pub fn call(&self) -> Call {
        self.call
    }

    /// What the driver said.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether it poisons the device.
    pub fn is_sticky(&self) -> bool {
        self.severity == Severity::Sticky
    }

    /// Whether it only says that memory ran out.
    pub fn is_memory(&self) -> bool {
        self.severity == Severity::Memory
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, in {}", self.message, self.call)
    }
}

impl std::error::Error for Fault {}
