//! Bytes on their way from the device to the host.

#![forbid(unsafe_code)]

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytemuck::Pod;
use parking_lot::Mutex;
use static_assertions::assert_impl_all;

use crate::callback::shielded;
use crate::error::{Error, Result};
use crate::memory::staging::Room;

/// Where a read lands. The operation owns it too, so that a reader who leaves early leaves nothing dangling.
#[derive(Default)]
pub(crate) struct Readback(Mutex<Landing>);

#[derive(Default)]
struct Landing {
    /// Holds anybody's bytes until the outcome says that the read's are there.
    room: Room,
    outcome: Option<Result<()>>,
    waker: Option<Waker>,
}

impl Readback {
    /// A read into `room`, in `shell` if nobody else holds that.
    pub(crate) fn renew(shell: Option<Arc<Self>>, room: Room) -> Arc<Self> {
        if let Some(mut shell) = shell
            && let Some(inner) = Arc::get_mut(&mut shell)
        {
            *inner.0.get_mut() = Landing { room, ..Landing::default() };
            return shell;
        }
        Arc::new(Readback(Mutex::new(Landing { room, ..Landing::default() })))
    }

    /// A read of nothing, which is done.
    pub(crate) fn of_nothing() -> Arc<Self> {
        let readback = Readback::default();
        readback.0.lock().outcome = Some(Ok(()));
        Arc::new(readback)
    }

    /// Lets go of everything.
    pub(crate) fn empty(&mut self) {
        *self.0.get_mut() = Landing::default();
    }

    /// How much host memory it keeps.
    pub(crate) fn held(&self) -> usize {
        self.0.lock().room.held()
    }

    /// Lets `fill` overwrite all of the bytes, and wakes who waits for them.
    pub(crate) fn land(&self, fill: impl FnOnce(&mut [u8])) {
        // Out of the lock meanwhile: who polls must not wait for a large copy.
        let mut room = std::mem::take(&mut self.0.lock().room);
        fill(room.bytes_mut());
        let mut landing = self.0.lock();
        landing.room = room;
        landing.outcome = Some(Ok(()));
        let waker = landing.waker.take();
        drop(landing);
        wake(waker);
    }

    /// Takes the room out, for a driver that fills it behind the back of this crate's types.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(crate) fn take_room(&self) -> Room {
        std::mem::take(&mut self.0.lock().room)
    }

    /// Gives the room back with what became of it. Whoever waits for it is to be [woken](wake) under no lock.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(crate) fn settle(&self, room: Room, outcome: Result<()>) -> Option<Waker> {
        let mut landing = self.0.lock();
        landing.room = room;
        landing.outcome = Some(outcome);
        landing.waker.take()
    }

    /// Gives the room back as it was taken.
    #[cfg(feature = "cuda")]
    pub(crate) fn put_room(&self, room: Room) {
        self.0.lock().room = room;
    }

    /// Says why there are no bytes, and wakes who waits for them.
    pub(crate) fn fail(&self, error: Error) {
        let mut landing = self.0.lock();
        landing.outcome = Some(Err(error));
        let waker = landing.waker.take();
        drop(landing);
        wake(waker);
    }

    /// The bytes, once they have landed, or why there are none.
    pub(crate) fn take(&self) -> Option<Result<Room>> {
        self.0.lock().take()
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<Room>> {
        // Cloning and dropping a waker is the user's code: no lock of ours is held.
        let waker = context.waker().clone();
        let mut landing = self.0.lock();
        if let Some(outcome) = landing.take() {
            drop(landing);
            return Poll::Ready(outcome);
        }
        let before = landing.waker.replace(waker);
        drop(landing);
        drop(before);
        Poll::Pending
    }
}

impl Landing {
    fn take(&mut self) -> Option<Result<Room>> {
        let outcome = self.outcome.take()?;
        Some(outcome.map(|()| std::mem::take(&mut self.room)))
    }
}

/// A waker is the user's code: called with no lock of ours held.
pub(crate) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        shielded(|| waker.wake());
    }
}

/// The elements of a buffer, as soon as the device has them; see [`Enqueue::read_async`](crate::Enqueue::read_async).
///
/// Dropping it early is safe, at any moment and on any thread: the read goes on, and what it lands in is used again
/// once the device is done with it. So an executor's own timer gives it a time limit (`tokio::time::timeout(limit,
/// future)` and its like).
#[must_use = "a future does nothing until it is awaited"]
pub struct ReadFuture<T> {
    readback: Arc<Readback>,
    _element: PhantomData<fn() -> T>,
}

impl<T: Pod> ReadFuture<T> {
    pub(crate) fn new(readback: Arc<Readback>) -> Self {
        ReadFuture { readback, _element: PhantomData }
    }
}

impl<T: Pod> Future for ReadFuture<T> {
    type Output = Result<Vec<T>>;

    /// # Panics
    /// Never; polled again after it was ready, it stays pending.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.readback.poll(context).map(|outcome| outcome.map(|room| elements(room.bytes())))
    }
}

/// Copies bytes into elements, which need not start at an aligned byte.
pub(crate) fn elements<T: Pod>(bytes: &[u8]) -> Vec<T> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(elements) => elements.to_vec(),
        Err(_) => bytemuck::allocation::pod_collect_to_vec(bytes),
    }
}

/// The bytes of a read whose operation is done.
pub(crate) fn landed(readback: &Readback) -> Result<Room> {
    match readback.take() {
        Some(outcome) => outcome,
        // Only reached when the queue was given up, which `DeviceLost` has reported before.
        None => Err(Error::Unsupported { operation: "read", reason: "the device gave up its queue" }),
    }
}

assert_impl_all!(ReadFuture<f32>: Send, Sync, Unpin);
