//! The operation that hands a queue of the driver's to somebody else.

#![allow(unsafe_code, reason = "what another library enqueues cannot be checked")]

use crate::Enqueue;
use crate::backend::Backend;
use crate::error::Result;
use crate::section::{self, HasRaw, RawArgs, SectionError};

/// What other libraries enqueue, on whatever [`Enqueue`] is for, where the backend [has raw sections](HasRaw).
pub trait EnqueueRaw<B: Backend>: Enqueue<B> {
    /// Enqueues what `section` enqueues, cuBLAS's work for example, as one operation of this stream.
    ///
    /// `section` runs once, at once, on the calling thread, in every phase. It gets a queue of its own (on CUDA a
    /// `&Arc<CudaStream>` of `cudarc`, whose context is current) and where the arguments are: a tuple of the same shape, see
    /// [`RawArg`](crate::RawArg). What it enqueues there is captured and not run: it runs in this operation's place in the
    /// order of things, by the access of its arguments, and on every replay if the stream records; if what the section
    /// reads was never written, what it writes counts as not written either. In a graph it is one node. A buffer born in the recording gets memory of its
    /// own here, outside the graph's arena, since its address is given away.
    ///
    /// **What `section` returns is kept** until the device is past the operation, or past the last replay of the last
    /// graph that holds it: a workspace, a handle, a [`RawBuffer`](crate::RawBuffer). It is then dropped on a thread of the
    /// library's, where every call of this crate returns [`Error::InCallback`](crate::Error::InCallback); on a lost device,
    /// never. A `Buffer` that is only returned may be moved meanwhile: pass it as an argument, or return its
    /// [`raw`](crate::Buffer::raw).
    ///
    /// **Sections keep their order.** Libraries keep state behind a handle, so that the sections of one device run one after
    /// the other, in all streams and graphs. One that names [`State`](crate::State) tokens among its arguments keeps its order
    /// with the users of those alone.
    ///
    /// Inside, other streams may be used freely, also of this device; what they enqueue comes before the section's
    /// work. Nobody's capture is disturbed, and no lock is held.
    ///
    /// # Errors
    /// What `section` returns, as [`Error::Step`](crate::Error::Step) unless it is this crate's own;
    /// [`SectionPanicked`](crate::Error::SectionPanicked); [`SectionBroken`](crate::Error::SectionBroken) if a call inside
    /// ended the capture; [`SectionAllocates`](crate::Error::SectionAllocates) and
    /// [`Unsupported`](crate::Error::Unsupported) for what no graph can repeat, or cannot be known to; and as for
    /// [`launch`](Enqueue::launch). What it was to write is tainted, or the recording doomed.
    ///
    /// # Safety
    /// Everything that `section` enqueues, or has enqueued by whatever it calls,
    /// - is enqueued on its queue, or on queues that it forks from that and joins to it again, before `section` returns; the
    ///   queue still captures by then, and is in no use afterwards (a clone of it may be kept, by a handle that gets
    ///   another one before its next use);
    /// - touches, on the device, only the arguments (elements of an [`Address`](crate::Address) are read, and those of an
    ///   [`AddressMut`](crate::AddressMut) written too), what `section` returns, and what lives and stays where it is for as
    ///   long as a graph may hold the section: kernels, modules and host memory included, which every run reads again;
    /// - has no race with other work on what it touches beside the arguments: what that work shares with it is behind a
    ///   [`State`](crate::State) that both name, or behind the one that unnamed sections share;
    /// - keeps to all this however often it runs, whatever bytes the arguments hold, and ends.
    ///
    /// What it does at once, without a queue, does not touch the arguments' memory.
    ///
    /// # Examples
    /// ```no_run
    /// # #[cfg(feature = "cuda")]
    /// # mod example {
    /// use cudarc::driver::sys;
    /// use dacapo::cuda::Cuda;
    /// use dacapo::{EnqueueRaw, Overwrite, prelude::*};
    ///
    /// type Buf = Buffer<f32, Cuda>;
    ///
    /// /// Copies by a call of the driver's; another library's call is made in the same way.
    /// fn copy(s: &mut impl Enqueue<Cuda>, x: &Buf, y: &mut Buf) -> dacapo::Result<()> {
    ///     // SAFETY: one copy, on the queue, of as many bytes of what is read as what is overwritten has.
    ///     unsafe {
    ///         s.raw((x, Overwrite(y)), |queue, (x, y)| {
    ///             assert_eq!(x.len(), y.len());
    ///             let bytes = x.len() * size_of::<f32>();
    ///             sys::cuMemcpyDtoDAsync_v2(y.get(), x.get(), bytes, queue.cu_stream()).result()?;
    ///             Ok(())
    ///         })
    ///     }
    /// }
    /// # }
    /// ```
    unsafe fn raw<A, K>(
        &mut self,
        args: A,
        section: impl FnOnce(&B::RawQueue, A::Addresses) -> Result<K, SectionError>,
    ) -> Result<()>
    where
        B: HasRaw,
        A: RawArgs<B>,
        K: Send + 'static,
    {
        section::enqueue(self.route("raw")?, args, section)
    }
}

#[diagnostic::do_not_recommend]
impl<B: Backend, S: Enqueue<B> + ?Sized> EnqueueRaw<B> for S {}
