//! What every phase can do: the operations of a stream.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::access::Access;
use crate::backend::command::Work as What;
use crate::backend::{Backend, Job};
use crate::buffer::{Buffer, Source, Target};
use crate::capture::recorder::Kind;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::fresh::{self, Fresh};
use crate::graph::Graph;
use crate::guest::{self, Guest};
use crate::kernel::args::UsesOf;
use crate::kernel::{Args, Blocks, Element, Kernel, Signature};
use crate::launch::Launch;
use crate::layout::Layout;
use crate::phase::CanWait;
use crate::profile::{self, Profile};
use crate::readback::ReadFuture;
use crate::stream_id::StreamId;
use crate::submit::{self, Route};
use crate::touch::Touches;
use crate::transfer::{self, HostData, mismatch};
use crate::wait;
use crate::work::Work;

/// Something that work can be enqueued on: a [`Stream`](crate::Stream) in any phase, a [`Work`], or an
/// [`AnyStream`](crate::AnyStream).
///
/// A step is written once against this trait, and runs eagerly, as a warm-up, and as a recording:
///
/// ```
/// use dacapo::prelude::*;
///
/// fn step<B: Backend>(s: &mut impl Enqueue<B>, add: &Kernel<(InOut<f32>, f32), B>, x: &mut Buffer<f32, B>) -> dacapo::Result<()> {
///     s.launch(add, Grid::covering(x.len()), (&mut *x, 1.0f32))
/// }
/// ```
///
/// **An operation that fails** returns its error, and what it was to write is tainted: reading those bytes before they
/// are written again returns the root cause. While the stream records, the recording is doomed instead, and cannot
/// become a graph. A call that is refused for where it comes from or for what became of its stream (`InCallback`,
/// `WrongPhase`, `Evicted`, `Doomed`, `DeviceLost`) changes nothing.
///
/// **While the stream records**, arguments are what they were at the call, on every replay: scalars, tables and host bytes
/// are copied into the graph, and buffers are those of the call. To change a value from replay to replay, keep it in a
/// buffer and write that.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is nothing that work can be enqueued on",
    label = "not a stream of backend `{B}`",
    note = "work is enqueued on a `Stream` in any phase, on the `Work` that `record` and `capture` lend, or on an `AnyStream`"
)]
pub trait Enqueue<B: Backend>: sealed::Route<B> {
    /// The stream's id.
    fn stream_id(&self) -> StreamId {
        self.core().id
    }

    /// The stream's device.
    fn device_handle(&self) -> Device<B> {
        Device { core: self.core().device.clone() }
    }

    /// A buffer of `len` elements that read as zero.
    ///
    /// While recording, the buffer is a name: `end` plans its memory, and every replay zeroes it again (unless no byte
    /// could be read before it is written).
    ///
    /// # Errors
    /// [`Error::BufferTooBig`] and [`Error::OutOfMemory`], with the numbers; nothing is allocated.
    fn alloc<T: Element>(&mut self, len: usize) -> Result<Buffer<T, B>> {
        fresh::allocate(&mut self.route("alloc")?, len, Fresh::Zeroed)
    }

    /// A buffer of `len` elements with unspecified contents, for those who overwrite all of it.
    ///
    /// # Errors
    /// As for [`alloc`](Enqueue::alloc).
    fn alloc_scratch<T: Element>(&mut self, len: usize) -> Result<Buffer<T, B>> {
        fresh::allocate(&mut self.route("alloc_scratch")?, len, Fresh::Scratch)
    }

    /// Launches `kernel` over `grid` with one tuple of arguments.
    ///
    /// An empty grid launches nothing; how many blocks there are may also be [found in a buffer](crate::Grid::indirect) when the
    /// launch runs. No allocation is made once warm.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], [`Error::Limit`] with the limit and both numbers, [`Error::Unchunkable`],
    /// [`Error::CheckFailed`] and [`Error::CheckPanicked`] from a [check](crate::Program::check) of the kernel's,
    /// [`Error::TableTooBig`], what an [indirect grid](crate::Grid::indirect) is refused for, what a buffer that has no memory
    /// says, [`Error::OutOfMemory`] for a table, and what the driver says. The outputs are tainted.
    fn launch<S: Signature, A: Args<S, B>>(
        &mut self,
        kernel: &Kernel<S, B>,
        grid: impl Blocks<B>,
        args: A,
    ) -> Result<()> {
        let mut route = self.route("launch")?;
        let mut uses = UsesOf::new();
        let problem = route.gather("launch", &mut uses, |into| {
            args.gather(into);
            kernel.states.iter().for_each(|state| into.state(state));
            grid.counts().into_iter().for_each(|counts| into.named(counts));
        });
        let (is_indirect, grid) = (grid.counts().is_some(), grid.grid());
        let launch = Launch { kernel: &kernel.loaded, checks: &kernel.checks, grid, is_indirect };
        match launch.perform(&mut route, &uses, problem) {
            None => Ok(()),
            Some(problem) => Err(*problem),
        }
    }

    /// Copies all elements of `from` to `to`.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] with both lengths, and as for [`launch`](Enqueue::launch). `to` is tainted.
    fn copy<T, F, D>(&mut self, from: F, to: D) -> Result<()>
    where
        T: Element,
        F: Source<B, Element = T>,
        D: Target<B, Element = T>,
    {
        let (from, to) = (from.source(), to.target());
        let mut route = self.route("copy")?;
        let mut problem = mismatch("copy", from.len(), to.len()).map(Box::new);
        let mut uses = UsesOf::new();
        let gathered = route.gather("copy", &mut uses, |into| {
            into.buffer(from, Access::Read);
            into.buffer(to, Access::Write);
        });
        problem = problem.or(gathered);
        if to.is_empty() && problem.is_none() {
            return Ok(());
        }
        route.perform("copy", &uses, Job(What::Copy), Kind::Plain, problem).map(drop)
    }

    /// Sets every element of `to` to `value`.
    ///
    /// # Errors
    /// As for [`launch`](Enqueue::launch). `to` is tainted.
    fn fill<T: Element, D: Target<B, Element = T>>(&mut self, to: D, value: T) -> Result<()> {
        let to = to.target();
        let mut route = self.route("fill")?;
        let mut uses = UsesOf::new();
        let problem = route.gather("fill", &mut uses, |into| {
            into.buffer(to, Access::Write);
            into.scalar(value);
        });
        if to.is_empty() && problem.is_none() {
            return Ok(());
        }
        route.perform("fill", &uses, Job(What::Fill), Kind::Plain, problem).map(drop)
    }

    /// Writes all of `data` to `to`, which has as many elements.
    ///
    /// Lent data (`&[T]`, `&[T; N]`, `&Vec<T>`) is copied before this returns, to pinned memory if the device has some
    /// to spare. Data handed over (`Vec<T>`, `Box<[T]>`, `Arc<[T]>`) is kept as it is, for as long as the device
    /// needs it. While recording, the graph owns the data, in memory of its own, and every replay writes it
    /// again: to give each replay new input, write outside the recording.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] with both lengths, and as for [`launch`](Enqueue::launch). `to` is tainted.
    fn write<T: Element, D: Target<B, Element = T>>(&mut self, to: D, data: impl HostData<T>) -> Result<()> {
        transfer::write(&mut self.route("write")?, to.target(), data)
    }

    /// Writes `data`, which holds the rows of `layout` side by side, to those rows of `to`, and leaves the padding
    /// between them as it is. `to` has [`span`](Layout::span) elements or more.
    ///
    /// For the order of things this is a use of the whole span; in all else, of the rows alone.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] if `data` has not as many elements as `layout`, and as for
    /// [`launch`](Enqueue::launch): the rows are tainted. [`Error::OutOfRange`] if `to` is too short: all of it is.
    fn write_pitched<T: Element, D: Target<B, Element = T>>(
        &mut self,
        to: D,
        layout: &Layout,
        data: impl HostData<T>,
    ) -> Result<()> {
        transfer::write_pitched(&mut self.route("write_pitched")?, to.target(), layout, data)
    }

    /// Calls `call` on the host when everything that this stream enqueued before is done, and before anything that it
    /// enqueues later runs. A graph owns the callback and calls it once a replay.
    ///
    /// Inside, every call of this crate returns [`Error::InCallback`]. A panic is caught and reported by the stream's
    /// next [`sync`](Enqueue::sync). In a graph this is a barrier; a callback that names what it uses
    /// ([`host_call_with`](Enqueue::host_call_with)) leaves the rest its freedom.
    ///
    /// On CUDA, one thread of the driver makes the calls of all streams, so that a call must not wait for another one, nor
    /// for a transfer that found no pinned memory; and while one blocks, loading a program on another thread waits for it,
    /// as the end of a recording does now and then, and keeps everybody from the driver meanwhile (see `Cuda`).
    ///
    /// # Errors
    /// What the driver says; it is not called.
    fn host_call(&mut self, call: impl FnMut() + Send + 'static) -> Result<()> {
        let mut route = self.route("host_call")?;
        let job = Job(What::HostCall { call: Arc::new(Mutex::new(call)) });
        route.perform("host_call", &[], job, Kind::Barrier, None).map(drop)
    }

    /// [`host_call`](Enqueue::host_call), ordered only by the buffers that it names. A panic inside taints those that
    /// it was to write, and if a buffer that it reads is tainted it is not called.
    ///
    /// # Errors
    /// As for [`launch`](Enqueue::launch); it is not called, and what it was to write is tainted.
    fn host_call_with(&mut self, touches: Touches<'_, B>, call: impl FnMut() + Send + 'static) -> Result<()> {
        let mut route = self.route("host_call")?;
        let mut uses = UsesOf::new();
        let problem = route.gather("host_call", &mut uses, |into| touches.gather(into));
        let job = Job(What::HostCall { call: Arc::new(Mutex::new(call)) });
        route.perform("host_call", &uses, job, Kind::Plain, problem).map(drop)
    }

    /// Makes `graph` part of what this stream does: replays it, or, while recording, records its nodes.
    ///
    /// The new graph keeps what it needs of the child's memory; the child may be dropped.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], and as for [`Graph::replay`].
    fn embed(&mut self, graph: &mut Graph<B>) -> Result<()> {
        let mut route = self.route("embed")?;
        let (expected, found) = (route.core.device.id, graph.core.device.id);
        if expected != found {
            let error = Error::WrongDevice { operation: "embed", object: "graph", expected, found };
            return Err(route.fail(error));
        }
        match route.window {
            None => submit::replay(route.core, &graph.core, None).map(drop),
            Some(guard) => guard.record(|recorder| {
                recorder.refuse_if_doomed("embed")?;
                recorder.embed(&graph.core.members, &graph.core.list)
            }),
        }
    }

    /// The elements of `from`, when everything that it depends on is done.
    ///
    /// # Errors
    /// [`Error::Tainted`] with the root cause if any of the bytes was never written; [`Error::NotReplayed`] and
    /// [`Error::ReadBeforeWrite`] where that is all; [`Error::StillRecording`] and [`Error::NeverSealed`] for a buffer
    /// born in a recording; [`Error::DeviceLost`]; what the driver says.
    fn read<T: Element, F: Source<B, Element = T>>(&mut self, from: F) -> Result<Vec<T>>
    where
        Self: CanWait,
    {
        transfer::fetch(self, from.source(), None, None)
    }

    /// [`read`](Enqueue::read), for at most `timeout`.
    ///
    /// # Errors
    /// As for `read`, and [`Error::Timeout`]: the read goes on, and its bytes are thrown away.
    fn read_timeout<T: Element, F: Source<B, Element = T>>(
        &mut self,
        from: F,
        timeout: Duration,
    ) -> Result<Vec<T>>
    where
        Self: CanWait,
    {
        transfer::fetch(self, from.source(), None, Some(timeout))
    }

    /// [`read`](Enqueue::read) into `into`, which has as many elements.
    ///
    /// # Errors
    /// As for `read`, and [`Error::LengthMismatch`]; `into` is as it was.
    fn read_into<T: Element, F: Source<B, Element = T>>(&mut self, from: F, into: &mut [T]) -> Result<()>
    where
        Self: CanWait,
    {
        transfer::fetch_into(self, from.source(), None, into, None)
    }

    /// [`read_into`](Enqueue::read_into), for at most `timeout`.
    ///
    /// # Errors
    /// As for `read_into`, and [`Error::Timeout`]: the read goes on, and its bytes are thrown away. `into` is as it was.
    fn read_into_timeout<T: Element, F: Source<B, Element = T>>(
        &mut self,
        from: F,
        into: &mut [T],
        timeout: Duration,
    ) -> Result<()>
    where
        Self: CanWait,
    {
        transfer::fetch_into(self, from.source(), None, into, Some(timeout))
    }

    /// Enqueues a read and returns at once; the future resolves when the device has the elements.
    ///
    /// # Errors
    /// As for [`read`](Enqueue::read), of what is known now; the future gives the rest.
    fn read_async<T: Element, F: Source<B, Element = T>>(&mut self, from: F) -> Result<ReadFuture<T>>
    where
        Self: CanWait,
    {
        transfer::read_async(&mut self.route("read_async")?, from.source())
    }

    /// The rows of `layout` in `from`, side by side: a [`read`](Enqueue::read) that leaves the padding out. `from` has
    /// [`span`](Layout::span) elements or more.
    ///
    /// # Errors
    /// As for `read`, of the rows alone, and [`Error::OutOfRange`] if `from` is too short.
    fn read_pitched<T: Element, F: Source<B, Element = T>>(
        &mut self,
        from: F,
        layout: &Layout,
    ) -> Result<Vec<T>>
    where
        Self: CanWait,
    {
        transfer::fetch(self, from.source(), Some(layout), None)
    }

    /// [`read_pitched`](Enqueue::read_pitched), for at most `timeout`.
    ///
    /// # Errors
    /// As for `read_pitched`, and [`Error::Timeout`]: the read goes on, and its bytes are thrown away.
    fn read_pitched_timeout<T: Element, F: Source<B, Element = T>>(
        &mut self,
        from: F,
        layout: &Layout,
        timeout: Duration,
    ) -> Result<Vec<T>>
    where
        Self: CanWait,
    {
        transfer::fetch(self, from.source(), Some(layout), Some(timeout))
    }

    /// [`read_pitched`](Enqueue::read_pitched) into `into`, which has as many elements as `layout`.
    ///
    /// # Errors
    /// As for `read_pitched`, and [`Error::LengthMismatch`]; `into` is as it was.
    fn read_pitched_into<T: Element, F: Source<B, Element = T>>(
        &mut self,
        from: F,
        layout: &Layout,
        into: &mut [T],
    ) -> Result<()>
    where
        Self: CanWait,
    {
        transfer::fetch_into(self, from.source(), Some(layout), into, None)
    }

    /// [`read_pitched_into`](Enqueue::read_pitched_into), for at most `timeout`.
    ///
    /// # Errors
    /// As for `read_pitched_into`, and [`Error::Timeout`]: the read goes on, and its bytes are thrown away. `into` is as
    /// it was.
    fn read_pitched_into_timeout<T: Element, F: Source<B, Element = T>>(
        &mut self,
        from: F,
        layout: &Layout,
        into: &mut [T],
        timeout: Duration,
    ) -> Result<()>
    where
        Self: CanWait,
    {
        transfer::fetch_into(self, from.source(), Some(layout), into, Some(timeout))
    }

    /// Blocks until everything that this stream enqueued is done.
    ///
    /// # Errors
    /// The first failure of this stream that its calls could not report, once; [`Error::DeviceLost`].
    fn sync(&mut self) -> Result<()>
    where
        Self: CanWait,
    {
        wait::sync(&mut self.route("sync")?, None)
    }

    /// [`sync`](Enqueue::sync), for at most `timeout`.
    ///
    /// # Errors
    /// As for `sync`, and [`Error::Timeout`]; everything goes on.
    fn sync_timeout(&mut self, timeout: Duration) -> Result<()>
    where
        Self: CanWait,
    {
        wait::sync(&mut self.route("sync")?, Some(timeout))
    }

    /// Orders what this stream enqueues from here on after everything that `theirs`, a stream of another library's, has been
    /// given so far. On CUDA it is a stream of `cudarc`, in the context of the device.
    ///
    /// It is an operation of this stream: [`sync`](Enqueue::sync) waits for it, and who waits for what the stream does
    /// next waits for it too, on whichever stream. Other streams go on beside `theirs` until they use what this one used
    /// after it. On `theirs`, nothing is enqueued but a mark.
    ///
    /// # Errors
    /// [`Error::TheirCapture`] if `theirs` captures, or may do so, and [`Error::WrongContext`]: nothing was enqueued. What
    /// the driver says.
    fn after(&mut self, theirs: &B::Stream) -> Result<()>
    where
        Self: CanWait,
        B: Guest,
    {
        guest::after(&mut self.route("after")?, theirs)
    }

    /// Orders what `theirs`, a stream of another library's, is given from here on after everything that this stream
    /// enqueued so far. On CUDA it is a stream of `cudarc`, in the context of the device.
    ///
    /// On `theirs`, nothing is enqueued but the wait. It must not begin to capture while this call runs.
    ///
    /// # Errors
    /// [`Error::TheirCapture`] if `theirs` captures, or may do so, and [`Error::WrongContext`]: nothing was enqueued. What
    /// the driver says.
    fn before(&mut self, theirs: &B::Stream) -> Result<()>
    where
        Self: CanWait,
        B: Guest,
    {
        guest::before(&mut self.route("before")?, theirs)
    }

    /// Runs `f` and measures how long the device took for what it enqueued; one replay alone is timed by
    /// [`Graph::replay_timed`], which waits for nothing.
    ///
    /// # Errors
    /// What `f` returns, and as for [`sync`](Enqueue::sync).
    fn profile<T>(&mut self, f: impl for<'w> FnOnce(&mut Work<'w, B>) -> Result<T>) -> Result<(T, Profile)>
    where
        Self: CanWait,
    {
        profile::measure(self, f)
    }
}

pub(crate) mod sealed {
    use super::*;
    use crate::stream::StreamCore;

    /// Where operations go. Only this crate's streams have it.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be made something that work is enqueued on",
        label = "only the streams of this crate are",
        note = "a type that owns a `Stream` lends it instead: `fn stream(&mut self) -> &mut impl Enqueue<B>`"
    )]
    pub trait Route<B: Backend> {
        fn route(&mut self, operation: &'static str) -> Result<super::Route<'_, B>>;
        fn core(&self) -> &StreamCore<B>;
    }
}
