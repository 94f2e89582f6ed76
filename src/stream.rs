//! `Stream`, and the transitions between its phases.

#![forbid(unsafe_code)]

use std::sync::Arc;

use static_assertions::{assert_impl_all, assert_not_impl_any};

use crate::backend::host::Host;
use crate::backend::{Backend, Command, Submitter};
use crate::callback;
use crate::capture::options::CaptureOptions;
use crate::capture::recorder::Recorder;
use crate::capture::seal;
use crate::capture::status::WindowId;
use crate::capture::window::WindowGuard;
use crate::device::{Device, DeviceCore};
use crate::enqueue::sealed::Route as Routed;
use crate::error::{Error, Result};
use crate::failures::Failures;
use crate::graph::Graph;
use crate::kernel::tables::Gathered;
use crate::memory::compaction::{self, Compaction};
use crate::memory::{self, AllocationMode};
use crate::one_thread::OneThread;
use crate::phase::{CanBegin, CanEnd, CanPrepare, NoCapture, Phase, PhaseName, Prepared, Recording};
use crate::refused::Refused;
use crate::stream_id::StreamId;
use crate::submit::Route;
use crate::work::{Pass, Work};

/// A sequence of work on one device, whose phase is part of its type.
///
/// ```text
/// Stream<NoCapture> --prepare--> Stream<Prepared> --begin--> Stream<Recording> --end--> Graph + Stream<NoCapture>
///         ^                            | cancel                    | abort, drop, panic
///         +----------------------------+---------------------------+
/// ```
///
/// | phase | entered by | what it allows | left by | what the forbidden calls would have done |
/// | --- | --- | --- | --- | --- |
/// | [`NoCapture`] | [`Device::stream`], `end`, `cancel`, `abort` | everything executes; replays; memory | [`prepare`](Stream::prepare) | `end` would end a recording that nobody began |
/// | [`Prepared`] | [`prepare`](Stream::prepare) | everything executes: the warm-up; replays | [`begin`](Stream::begin), [`cancel`](Stream::cancel) | `prepare` would open a second window on one stream; memory calls would undo the warm-up |
/// | [`Recording`] | [`begin`](Stream::begin) | launches, copies, fills, writes, allocations, callbacks are recorded | [`end`](Stream::end), [`abort`](Stream::abort) | `read` and `sync` would wait for work that does not run; a replay would run before what was recorded before it |
///
/// The operations are in [`Enqueue`](crate::Enqueue). For a window that is no wider than a closure, use
/// [`record`](Stream::record) or [`capture`](Stream::capture), which borrow the stream. Dropping a prepared or
/// recording stream, also by a panic, closes its window and discards the recording; the device stays usable. A stream
/// that is leaked instead keeps its window open, to nobody's harm, until somebody [evicts](Device::evict) it.
#[must_use = "dropping a stream in a capture closes the window and discards the recording"]
pub struct Stream<P: Phase = NoCapture, B: Backend = Host> {
    core: Box<StreamCore<B>>,
    state: P::State<B>,
    /// A stream is driven by one thread at a time.
    _one_thread: OneThread,
}

/// What a stream is in every phase. Never lent to a user: two of them could be swapped under each other's phase.
///
/// In the order of its fields: what a launch needs is side by side.
#[repr(C)]
pub struct StreamCore<B: Backend> {
    pub(crate) device: Arc<DeviceCore<B>>,
    pub(crate) slot: u32,
    pub(crate) mode: AllocationMode,
    /// The last operation of this stream in its slot.
    pub(crate) last: u64,
    /// The scalars of the operation at hand.
    pub(crate) scalars: Vec<u8>,
    pub(crate) tables: Gathered,
    /// The operation at hand, once it executes; between operations the room for the next one's arguments.
    pub(crate) command: Command<B>,
    pub(crate) by: Submitter,
    pub(crate) id: StreamId,
    /// The room of the last recording, for the next one.
    pub(crate) spare: Option<Box<Recorder<B>>>,
}

impl<P: Phase, B: Backend> Stream<P, B> {
    fn assemble(core: Box<StreamCore<B>>, state: P::State<B>) -> Self {
        Stream { core, state, _one_thread: [] }
    }

    /// The stream's id: assigned by the device, and never given to another stream.
    pub fn id(&self) -> StreamId {
        self.core.id
    }

    /// The device that the stream runs on.
    pub fn device(&self) -> Device<B> {
        Device { core: self.core.device.clone() }
    }

    /// The open window, for [`Device::evict`]; `None` in no capture.
    pub fn window(&self) -> Option<WindowId> {
        P::window(&self.state).map(|guard| guard.window.id)
    }

    /// The phase, where it is wanted as a value.
    pub fn phase(&self) -> PhaseName {
        P::NAME
    }

    pub(crate) fn into_raw(self) -> (Box<StreamCore<B>>, P::State<B>) {
        (self.core, self.state)
    }
}

impl<B: Backend> Stream<NoCapture, B> {
    pub(crate) fn new(device: &Arc<DeviceCore<B>>, id: StreamId) -> Self {
        let core = StreamCore {
            device: device.clone(),
            id,
            slot: id.slot(device.slots.len()) as u32,
            by: Submitter { stream: id, failures: Arc::new(Failures::default()) },
            last: 0,
            mode: AllocationMode::default(),
            spare: None,
            tables: Gathered::default(),
            scalars: Vec::new(),
            command: Command::taken(),
        };
        Self::assemble(Box::new(core), ())
    }

    pub(crate) fn from_core(core: Box<StreamCore<B>>) -> Self {
        Self::assemble(core, ())
    }
}

impl<B: Backend> Stream<Prepared, B> {
    pub(crate) fn from_prepared(core: Box<StreamCore<B>>, guard: WindowGuard<B>) -> Self {
        Self::assemble(core, guard)
    }
}

impl<B: Backend> Stream<Recording, B> {
    pub(crate) fn from_recording(core: Box<StreamCore<B>>, guard: WindowGuard<B>) -> Self {
        Self::assemble(core, guard)
    }
}

/// Transitions out of [`NoCapture`], and what only a stream in no capture may do.
impl<P: Phase, B: Backend> Stream<P, B> {
    /// Opens a window: from here on the stream counts as capturing, and executes its warm-up.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] and [`Error::InCallback`]. [`Refused`] holds the stream as it was.
    pub fn prepare(self) -> Result<Stream<Prepared, B>, Refused<Stream<NoCapture, B>>>
    where
        P: CanPrepare,
    {
        self.prepare_with(CaptureOptions::default())
    }

    /// [`prepare`](Stream::prepare), with options for the graph.
    ///
    /// # Errors
    /// As for `prepare`, and [`Error::WrongDevice`] if the arena to share belongs to another device.
    pub fn prepare_with(
        self,
        options: CaptureOptions<B>,
    ) -> Result<Stream<Prepared, B>, Refused<Stream<NoCapture, B>>>
    where
        P: CanPrepare,
    {
        match WindowGuard::open(&self.core, options) {
            Ok(guard) => Ok(Stream::assemble(self.core, guard)),
            Err(error) => Err(Refused::new(Stream::from_core(self.core), error)),
        }
    }

    /// Records `step` once and seals it: the everyday form, for a stream that stays where it is.
    ///
    /// Nothing executes. What `step` returns comes out beside the graph. The window is closed on an error and on a
    /// panic too.
    ///
    /// ```
    /// use dacapo::prelude::*;
    ///
    /// # fn main() -> dacapo::Result<()> {
    /// let device = Device::host()?;
    /// let mut stream = device.stream()?;
    /// let mut x = stream.alloc::<f32>(4)?;
    /// let add_one = Program::<(InOut<f32>,)>::new("add_one")
    ///     .host(|(x,), _| x.iter_mut().for_each(|x| *x += 1.0))
    ///     .load(&device)?;
    /// let (mut graph, ()) = stream.record(|work| work.launch(&add_one, Grid::covering(4), (&mut x,)))?;
    /// graph.replay(&mut stream)?;
    /// graph.replay(&mut stream)?;
    /// assert_eq!(stream.read(&x)?, [2.0; 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What `step` returned; if that is `Ok` or [`Error::Doomed`], the first failure inside it; else what sealing met.
    /// There is no graph, and the stream is in no capture.
    pub fn record<T>(
        &mut self,
        step: impl for<'w> FnOnce(&mut Work<'w, B>) -> Result<T>,
    ) -> Result<(Graph<B>, T)>
    where
        P: CanPrepare,
    {
        self.record_with(CaptureOptions::default(), step)
    }

    /// [`record`](Stream::record), with options for the graph.
    ///
    /// # Errors
    /// As for `record`.
    pub fn record_with<T>(
        &mut self,
        options: CaptureOptions<B>,
        step: impl for<'w> FnOnce(&mut Work<'w, B>) -> Result<T>,
    ) -> Result<(Graph<B>, T)>
    where
        P: CanPrepare,
    {
        let guard = WindowGuard::open(&self.core, options)?;
        guard.begin(&mut self.core)?;
        record_in(&mut self.core, guard, step)
    }

    /// Runs `step` as a warm-up, **for real, host calls and writes included**, and then again as the recording.
    ///
    /// The warm-up compiles and loads kernels, lets autotuners decide, and shows the memory that a pass needs.
    /// [`Work::pass`] tells `step` which pass it is. What the recording's pass returned comes out.
    ///
    /// At its peak a capture holds the memory of two passes: the warm-up's, which goes back to its pool for the next one,
    /// and the recorded one's, which the graph keeps.
    ///
    /// # Errors
    /// What `step` returned, in either pass; else as for [`record`](Stream::record). There is no graph, and the stream
    /// is in no capture.
    pub fn capture<T>(
        &mut self,
        step: impl for<'w> FnMut(&mut Work<'w, B>) -> Result<T>,
    ) -> Result<(Graph<B>, T)>
    where
        P: CanPrepare,
    {
        self.capture_with(CaptureOptions::default(), step)
    }

    /// [`capture`](Stream::capture), with options for the graph.
    ///
    /// # Errors
    /// As for `capture`.
    pub fn capture_with<T>(
        &mut self,
        options: CaptureOptions<B>,
        mut step: impl for<'w> FnMut(&mut Work<'w, B>) -> Result<T>,
    ) -> Result<(Graph<B>, T)>
    where
        P: CanPrepare,
    {
        let guard = WindowGuard::open(&self.core, options)?;
        step(&mut Work::lend(&mut self.core, Some(&guard), Pass::WarmUp))?;
        guard.begin(&mut self.core)?;
        record_in(&mut self.core, guard, step)
    }

    /// Runs `f` with buffers coming from where `mode` says.
    ///
    /// # Errors
    /// What `f` returns.
    pub fn allocating<T>(
        &mut self,
        mode: AllocationMode,
        f: impl for<'w> FnOnce(&mut Work<'w, B>) -> Result<T>,
    ) -> Result<T>
    where
        P: CanPrepare,
    {
        self.core.allocating(mode, f)
    }

    /// Gives every page that nobody uses, and all pinned memory that no transfer needs, back to the driver, as far as
    /// work in flight lets it, after letting go of every [table](crate::Uniform) that no graph or window needs.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] and [`Error::InCallback`]; nothing is given back. What the driver says of a page that it
    /// does not take: that one stays held, and is offered to it again.
    pub fn memory_cleanup(&mut self) -> Result<()>
    where
        P: CanPrepare,
    {
        self.core.memory_cleanup()
    }

    /// Moves the device's buffers together, so that pages become empty and go back to the driver.
    ///
    /// Moves are copies in the order of the queues, of every slot's buffers; other threads go on meanwhile. What a graph,
    /// an open window or a [raw address](crate::Buffer::raw) holds stays where it is, and so does what shares a page with it.
    /// A reservation that finds no memory does this by itself, and [`prepare`](Stream::prepare) where the graph would
    /// else pin a page that is hardly used.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] and [`Error::InCallback`]; nothing is moved. What the driver says of a move that it refuses:
    /// what was moved before stays moved, and everything else where it is. A move that fails when it runs taints the buffer
    /// that it was to move, and is reported by this stream's next [`sync`](crate::Enqueue::sync) after that: moves run in
    /// the queues of the pages that they empty, and `sync` waits for its own stream's work alone.
    pub fn compact(&mut self) -> Result<Compaction>
    where
        P: CanPrepare,
    {
        self.core.compact()
    }
}

impl<B: Backend> StreamCore<B> {
    /// See [`Stream::allocating`].
    pub(crate) fn allocating<T>(
        &mut self,
        mode: AllocationMode,
        f: impl for<'w> FnOnce(&mut Work<'w, B>) -> Result<T>,
    ) -> Result<T> {
        /// Brings the mode back, also when `f` panics.
        struct Restore<'c, B: Backend>(&'c mut StreamCore<B>, AllocationMode);
        impl<B: Backend> Drop for Restore<'_, B> {
            fn drop(&mut self) {
                self.0.mode = self.1;
            }
        }
        let before = std::mem::replace(&mut self.mode, mode);
        let scope = Restore(self, before);
        f(&mut Work::lend(&mut *scope.0, None, Pass::Direct))
    }

    /// See [`Stream::memory_cleanup`].
    pub(crate) fn memory_cleanup(&mut self) -> Result<()> {
        callback::refuse("memory_cleanup")?;
        self.device.poison.check()?;
        memory::cleanup(&self.device)
    }

    /// See [`Stream::compact`].
    pub(crate) fn compact(&mut self) -> Result<Compaction> {
        callback::refuse("compact")?;
        self.device.poison.check()?;
        let alone = compaction::alone(&self.device);
        let done = compaction::compact(&self.device, &self.by)?;
        drop(alone);
        self.device.poison.check()?;
        Ok(done)
    }
}

/// Transitions out of [`Prepared`].
impl<P: Phase, B: Backend> Stream<P, B> {
    /// Starts to record: from here on, operations are gathered and nothing executes.
    ///
    /// # Errors
    /// [`Error::Evicted`], [`Error::DeviceLost`], [`Error::InCallback`], and what the driver says. The window is
    /// closed, and [`Refused`] holds the stream in no capture.
    pub fn begin(self) -> Result<Stream<Recording, B>, Refused<Stream<NoCapture, B>>>
    where
        P: CanBegin,
    {
        let (mut core, guard) = (self.core, P::into_guard(self.state));
        match guard.begin(&mut core) {
            Ok(()) => Ok(Stream::assemble(core, guard)),
            Err(error) => {
                drop(guard);
                Err(Refused::new(Stream::from_core(core), error))
            }
        }
    }

    /// Gives the capture up before it began to record. What the warm-up did stays done.
    pub fn cancel(self) -> Stream<NoCapture, B>
    where
        P: CanBegin,
    {
        drop(P::into_guard(self.state));
        Stream::from_core(self.core)
    }
}

/// Transitions out of [`Recording`].
impl<P: Phase, B: Backend> Stream<P, B> {
    /// Ends the recording and seals it: finds the order of the data, plans the memory, makes the graph.
    ///
    /// On CUDA the driver now and then makes room for graphs in this call, and waits for that until the device does nothing
    /// (see `Cuda`).
    ///
    /// # Errors
    /// The first failure that the recording met; else [`Error::OutOfMemory`] or [`Error::ArenaLimit`] for its arena,
    /// [`Error::Evicted`], or what the driver says. There is no graph: buffers born in the recording are lost, and
    /// bytes from outside are what they were. [`Refused`] holds the stream in no capture.
    #[allow(clippy::type_complexity, reason = "an alias would hide what comes out of either end")]
    pub fn end(self) -> Result<(Graph<B>, Stream<NoCapture, B>), Refused<Stream<NoCapture, B>>>
    where
        P: CanEnd,
    {
        let (mut core, guard) = (self.core, P::into_guard(self.state));
        let sealed = seal::end(&mut core, guard);
        let stream = Stream::from_core(core);
        match sealed {
            Ok(graph) => Ok((graph, stream)),
            Err(error) => Err(Refused::new(stream, error)),
        }
    }

    /// Discards the recording. Buffers born in it are lost; nothing else changed, since nothing ran.
    pub fn abort(self) -> Stream<NoCapture, B>
    where
        P: CanEnd,
    {
        let mut core = self.core;
        P::into_guard(self.state).abort(&mut core);
        Stream::from_core(core)
    }
}

/// Runs the recording pass of `step` in the open window of `guard`, and seals it.
fn record_in<B: Backend, T>(
    core: &mut StreamCore<B>,
    guard: WindowGuard<B>,
    step: impl for<'w> FnOnce(&mut Work<'w, B>) -> Result<T>,
) -> Result<(Graph<B>, T)> {
    let outcome = step(&mut Work::lend(core, Some(&guard), Pass::Recording));
    match outcome {
        Ok(value) => seal::end(core, guard).map(|graph| (graph, value)),
        Err(error) => {
            // `Doomed` only says that something failed before: that is what the caller wants to know.
            let first = guard.record(|recorder| Ok(recorder.doom.clone())).ok().flatten();
            let cause = first.unwrap_or_else(|| Arc::new(error.clone()));
            let _ = guard.record(|recorder| {
                recorder.fail((*cause).clone());
                Ok(())
            });
            drop(guard);
            Err(if matches!(error, Error::Doomed { .. }) { (*cause).clone() } else { error })
        }
    }
}

#[diagnostic::do_not_recommend]
impl<P: Phase, B: Backend> Routed<B> for Stream<P, B> {
    fn route(&mut self, operation: &'static str) -> Result<Route<'_, B>> {
        Route::open(&mut self.core, P::window(&self.state), operation)
    }

    fn core(&self) -> &StreamCore<B> {
        &self.core
    }
}

impl<P: Phase, B: Backend> crate::Enqueue<B> for Stream<P, B> {}

impl<P: Phase, B: Backend> std::fmt::Debug for Stream<P, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("id", &self.core.id)
            .field("phase", &P::NAME)
            .field("backend", &B::NAME)
            .finish_non_exhaustive()
    }
}

assert_impl_all!(Stream<NoCapture>: Send);
assert_impl_all!(Stream<Prepared>: Send);
assert_impl_all!(Stream<Recording>: Send);
assert_not_impl_any!(Stream<NoCapture>: Sync, Clone);
assert_not_impl_any!(Stream<Recording>: Sync, Clone);
