//! A stream whose phase is known only at run time.

#![forbid(unsafe_code)]

use static_assertions::{assert_impl_all, assert_not_impl_any};

use crate::backend::Backend;
use crate::backend::host::Host;
use crate::capture::options::CaptureOptions;
use crate::capture::seal;
use crate::capture::status::WindowId;
use crate::capture::window::WindowGuard;
use crate::enqueue::sealed::Route as Routed;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::memory::AllocationMode;
use crate::memory::compaction::Compaction;
use crate::one_thread::OneThread;
use crate::phase::{self, CanReplay, CanWait, NoCapture, PhaseName, Prepared, Recording};
use crate::refused::Refused;
use crate::stream::{Stream, StreamCore};
use crate::submit::Route;
use crate::work::Work;

/// A stream in a phase that is known only at run time, for those who address streams by id: an actor, a server.
///
/// Transitions take `&mut self`. One that is out of order is [`Error::WrongPhase`] and changes nothing, and so is a
/// read or a wait while it records. `From` makes one of a typed stream, and `TryFrom` gives the typed stream back.
#[must_use = "dropping a stream in a capture closes the window and discards the recording"]
pub struct AnyStream<B: Backend = Host> {
    core: Box<StreamCore<B>>,
    state: State<B>,
    /// A stream is driven by one thread at a time.
    _one_thread: OneThread,
}

enum State<B: Backend> {
    NoCapture,
    Prepared(WindowGuard<B>),
    Recording(WindowGuard<B>),
}

impl<B: Backend> AnyStream<B> {
    fn new(core: Box<StreamCore<B>>, state: State<B>) -> Self {
        AnyStream { core, state, _one_thread: [] }
    }

    /// The phase at this moment.
    pub fn phase(&self) -> PhaseName {
        match self.state {
            State::NoCapture => PhaseName::NoCapture,
            State::Prepared(_) => PhaseName::Prepared,
            State::Recording(_) => PhaseName::Recording,
        }
    }

    /// The open window, for [`Device::evict`](crate::Device::evict); `None` in no capture.
    pub fn window(&self) -> Option<WindowId> {
        self.guard().map(|guard| guard.window.id)
    }

    /// As [`Stream::prepare`].
    ///
    /// # Errors
    /// [`Error::WrongPhase`] unless in no capture, and as for `Stream::prepare`; nothing changes.
    pub fn prepare(&mut self) -> Result<()> {
        self.prepare_with(CaptureOptions::default())
    }

    /// As [`Stream::prepare_with`].
    ///
    /// # Errors
    /// As for [`prepare`](AnyStream::prepare).
    pub fn prepare_with(&mut self, options: CaptureOptions<B>) -> Result<()> {
        self.need("prepare", PhaseName::NoCapture, "a stream in no capture")?;
        self.state = State::Prepared(WindowGuard::open(&self.core, options)?);
        Ok(())
    }

    /// As [`Stream::begin`].
    ///
    /// # Errors
    /// [`Error::WrongPhase`] unless prepared, which changes nothing; else as for `Stream::begin`, and the stream is in
    /// no capture.
    pub fn begin(&mut self) -> Result<()> {
        self.need("begin", PhaseName::Prepared, "a prepared stream")?;
        let Some(guard) = self.take() else { return Ok(()) };
        guard.begin(&mut self.core)?;
        self.state = State::Recording(guard);
        Ok(())
    }

    /// As [`Stream::cancel`].
    ///
    /// # Errors
    /// [`Error::WrongPhase`] unless prepared; nothing changes.
    pub fn cancel(&mut self) -> Result<()> {
        self.need("cancel", PhaseName::Prepared, "a prepared stream")?;
        drop(self.take());
        Ok(())
    }

    /// As [`Stream::end`].
    ///
    /// # Errors
    /// [`Error::WrongPhase`] unless recording, which changes nothing; else as for `Stream::end`, and the stream is in
    /// no capture.
    pub fn end(&mut self) -> Result<Graph<B>> {
        self.need("end", PhaseName::Recording, "a recording stream")?;
        match self.take() {
            Some(guard) => seal::end(&mut self.core, guard),
            None => Err(self.wrong_phase("end", "a recording stream")),
        }
    }

    /// As [`Stream::abort`].
    ///
    /// # Errors
    /// [`Error::WrongPhase`] unless recording; nothing changes.
    pub fn abort(&mut self) -> Result<()> {
        self.need("abort", PhaseName::Recording, "a recording stream")?;
        if let Some(guard) = self.take() {
            guard.abort(&mut self.core);
        }
        Ok(())
    }

    /// As [`Stream::allocating`].
    ///
    /// # Errors
    /// [`Error::WrongPhase`] unless in no capture, and then `f` is not run; else what `f` returns.
    pub fn allocating<T>(
        &mut self,
        mode: AllocationMode,
        f: impl for<'w> FnOnce(&mut Work<'w, B>) -> Result<T>,
    ) -> Result<T> {
        self.need("allocating", PhaseName::NoCapture, "a stream in no capture")?;
        self.core.allocating(mode, f)
    }

    /// As [`Stream::memory_cleanup`].
    ///
    /// # Errors
    /// [`Error::WrongPhase`] unless in no capture, and as for `Stream::memory_cleanup`; nothing is given back.
    pub fn memory_cleanup(&mut self) -> Result<()> {
        self.need("memory_cleanup", PhaseName::NoCapture, "a stream in no capture")?;
        self.core.memory_cleanup()
    }

    /// As [`Stream::compact`].
    ///
    /// # Errors
    /// [`Error::WrongPhase`] unless in no capture, and as for `Stream::compact`; nothing is moved.
    pub fn compact(&mut self) -> Result<Compaction> {
        self.need("compact", PhaseName::NoCapture, "a stream in no capture")?;
        self.core.compact()
    }

    fn guard(&self) -> Option<&WindowGuard<B>> {
        match &self.state {
            State::NoCapture => None,
            State::Prepared(guard) | State::Recording(guard) => Some(guard),
        }
    }

    /// Leaves the stream in no capture, and hands its window over.
    fn take(&mut self) -> Option<WindowGuard<B>> {
        match std::mem::replace(&mut self.state, State::NoCapture) {
            State::NoCapture => None,
            State::Prepared(guard) | State::Recording(guard) => Some(guard),
        }
    }

    fn need(&self, operation: &'static str, phase: PhaseName, needs: &'static str) -> Result<()> {
        crate::callback::refuse(operation)?;
        if self.phase() == phase { Ok(()) } else { Err(self.wrong_phase(operation, needs)) }
    }

    fn wrong_phase(&self, operation: &'static str, needs: &'static str) -> Error {
        Error::WrongPhase { operation, is: self.phase(), needs }
    }
}

#[diagnostic::do_not_recommend]
impl<B: Backend> Routed<B> for AnyStream<B> {
    fn route(&mut self, operation: &'static str) -> Result<Route<'_, B>> {
        /// What must not be asked while nothing runs.
        const WAITS: [&str; 9] = [
            "read",
            "read_pitched",
            "read_async",
            "sync",
            "profile",
            "after",
            "before",
            "from_cudarc",
            "from_wgpu",
        ];
        if WAITS.contains(&operation) && matches!(self.state, State::Recording(_)) {
            return Err(self.wrong_phase(operation, "a stream that executes: end the recording first"));
        }
        let guard = match &self.state {
            State::NoCapture => None,
            State::Prepared(guard) | State::Recording(guard) => Some(guard),
        };
        Route::open(&mut self.core, guard, operation)
    }

    fn core(&self) -> &StreamCore<B> {
        &self.core
    }
}

impl<B: Backend> crate::Enqueue<B> for AnyStream<B> {}
#[diagnostic::do_not_recommend]
impl<B: Backend> phase::sealed::CanWait for AnyStream<B> {}
impl<B: Backend> CanWait for AnyStream<B> {}
#[diagnostic::do_not_recommend]
impl<B: Backend> phase::sealed::CanReplay<B> for AnyStream<B> {}
impl<B: Backend> CanReplay<B> for AnyStream<B> {}

impl<B: Backend> From<Stream<NoCapture, B>> for AnyStream<B> {
    fn from(stream: Stream<NoCapture, B>) -> Self {
        let (core, ()) = stream.into_raw();
        AnyStream::new(core, State::NoCapture)
    }
}

impl<B: Backend> From<Stream<Prepared, B>> for AnyStream<B> {
    fn from(stream: Stream<Prepared, B>) -> Self {
        let (core, guard) = stream.into_raw();
        AnyStream::new(core, State::Prepared(guard))
    }
}

impl<B: Backend> From<Stream<Recording, B>> for AnyStream<B> {
    fn from(stream: Stream<Recording, B>) -> Self {
        let (core, guard) = stream.into_raw();
        AnyStream::new(core, State::Recording(guard))
    }
}

macro_rules! try_from {
    ($phase:ty, $needs:literal, $stream:expr) => {
        impl<B: Backend> TryFrom<AnyStream<B>> for Stream<$phase, B> {
            type Error = Refused<AnyStream<B>>;

            /// The typed stream, if it is in that phase; else the stream as it was.
            fn try_from(any: AnyStream<B>) -> Result<Self, Refused<AnyStream<B>>> {
                let error = any.wrong_phase("into a typed stream", $needs);
                let make: fn(Box<StreamCore<B>>, State<B>) -> Result<Self, (Box<StreamCore<B>>, State<B>)> =
                    $stream;
                make(any.core, any.state)
                    .map_err(|(core, state)| Refused::new(AnyStream::new(core, state), error))
            }
        }
    };
}

try_from!(NoCapture, "a stream in no capture", |core, state| match state {
    State::NoCapture => Ok(Stream::from_core(core)),
    other => Err((core, other)),
});
try_from!(Prepared, "a prepared stream", |core, state| match state {
    State::Prepared(guard) => Ok(Stream::from_prepared(core, guard)),
    other => Err((core, other)),
});
try_from!(Recording, "a recording stream", |core, state| match state {
    State::Recording(guard) => Ok(Stream::from_recording(core, guard)),
    other => Err((core, other)),
});

impl<B: Backend> std::fmt::Debug for AnyStream<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnyStream")
            .field("id", &self.core.id)
            .field("phase", &self.phase())
            .finish_non_exhaustive()
    }
}

assert_impl_all!(AnyStream: Send);
assert_not_impl_any!(AnyStream: Sync, Clone);
