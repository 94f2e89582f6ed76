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

/// Where a read lands. The operation owns it too, so that a reader who leaves early leaves nothing dangling.
#[derive(Default)]
pub(crate) struct Readback(Mutex<Landing>);

#[derive(Default)]
struct Landing {
    outcome: Option<Result<Vec<u8>>>,
    waker: Option<Waker>,
}

impl Readback {
    /// Delivers the bytes, or why there are none, and wakes who waits.
    pub(crate) fn deliver(&self, outcome: Result<Vec<u8>>) {
        let mut landing = self.0.lock();
        landing.outcome = Some(outcome);
        let waker = landing.waker.take();
        drop(landing);
        // A waker is the user's code: no lock of ours is held.
        if let Some(waker) = waker {
            shielded(|| waker.wake());
        }
    }

    pub(crate) fn take(&self) -> Option<Result<Vec<u8>>> {
        self.0.lock().outcome.take()
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<Vec<u8>>> {
        // Cloning and dropping a waker is the user's code: no lock of ours is held.
        let waker = context.waker().clone();
        let mut landing = self.0.lock();
        if let Some(outcome) = landing.outcome.take() {
            return Poll::Ready(outcome);
        }
        let before = landing.waker.replace(waker);
        drop(landing);
        drop(before);
        Poll::Pending
    }
}

/// The elements of a buffer, as soon as the device has them; see [`Enqueue::read_async`](crate::Enqueue::read_async).
///
/// Dropping it early is safe: the read goes on and its bytes are thrown away.
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
        self.readback.poll(context).map(|outcome| outcome.map(|bytes| elements(&bytes)))
    }
}

/// Copies bytes into elements, which need not start at an aligned byte.
pub(crate) fn elements<T: Pod>(bytes: &[u8]) -> Vec<T> {
    bytemuck::allocation::pod_collect_to_vec(bytes)
}

/// The outcome of a read whose operation is done.
pub(crate) fn landed<T: Pod>(readback: &Readback) -> Result<Vec<T>> {
    match readback.take() {
        Some(outcome) => outcome.map(|bytes| elements(&bytes)),
        // Only reached when the queue was given up, which `DeviceLost` has reported before.
        None => Err(Error::Unsupported { operation: "read", reason: "the device gave up its queue" }),
    }
}

assert_impl_all!(ReadFuture<f32>: Send, Sync, Unpin);
