//! `read_async`: futures that need nothing but a waker.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use dacapo::{Error, ReadFuture};

use super::support::*;

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Bell {
    fn rung(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn poll_with(future: &mut ReadFuture<f32>, bell: &Arc<Bell>) -> Poll<Result<Vec<f32>, Error>> {
    let waker = Waker::from(bell.clone());
    Pin::new(future).poll(&mut Context::from_waker(&waker))
}

/// All of its futures, polled in turn until the last one is ready.
struct Join(Vec<(ReadFuture<f32>, Option<Vec<f32>>)>);

impl Future for Join {
    type Output = Vec<Vec<f32>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        for (future, elements) in self.0.iter_mut().filter(|(_, elements)| elements.is_none()) {
            if let Poll::Ready(outcome) = Pin::new(future).poll(context) {
                *elements = Some(outcome.unwrap());
            }
        }
        if self.0.iter().any(|(_, elements)| elements.is_none()) {
            return Poll::Pending;
        }
        Poll::Ready(self.0.drain(..).filter_map(|(_, elements)| elements).collect())
    }
}

/// No runtime is named anywhere: an executor of ten lines must do.
#[test]
fn reads_in_flight_resolve_on_any_executor() {
    let Some((device, k)) = working(2) else { return };
    let mut streams = [device.stream().unwrap(), device.stream().unwrap()];
    let mut c = filled(&mut streams[0], 0.0);
    let futures = (0..20).map(|i| {
        let stream = &mut streams[i % 2];
        stream.launch(&k.inc, grid(), (&mut c, Len)).unwrap();
        (stream.read_async(&c).unwrap(), None)
    });
    let futures = Join(futures.collect());
    let read = block_on(futures);
    for (i, elements) in read.iter().enumerate() {
        assert!(all(elements, (i + 1) as f32), "each read is in its place of the order");
    }
}

/// A future that was woken too early spins, and one that is not woken hangs.
#[test]
fn a_future_wakes_once_when_its_read_ran() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let x = filled(&mut stream, 6.0);
    let mut future = stream.read_async(&x).unwrap();
    stream.sync().unwrap();
    assert!(all(&poll(&mut future).unwrap().unwrap(), 6.0), "ready before it was ever polled");

    let gate = Gate::close(&mut stream);
    let mut future = stream.read_async(&x).unwrap();
    let bell = Arc::new(Bell::default());
    assert!(poll_with(&mut future, &bell).is_pending());
    assert_eq!(bell.rung(), 0);
    gate.open();
    assert!(eventually(|| bell.rung() == 1));
    assert!(matches!(poll_with(&mut future, &bell), Poll::Ready(Ok(read)) if all(&read, 6.0)));
    stream.sync().unwrap();
    assert_eq!(bell.rung(), 1);
}

/// A future that moved to another task must wake that one.
#[test]
fn the_waker_of_the_last_poll_is_the_one_that_is_woken() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let x = filled(&mut stream, 6.0);
    let gate = Gate::close(&mut stream);
    let mut future = stream.read_async(&x).unwrap();
    let (first, last) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
    assert!(poll_with(&mut future, &first).is_pending());
    assert!(poll_with(&mut future, &last).is_pending());
    gate.open();
    assert!(eventually(|| last.rung() == 1));
    assert_eq!(first.rung(), 0);
}

/// The device writes what a dropped future left behind: it must not be the future's memory.
#[test]
fn dropping_a_future_early_is_safe_and_leaves_nothing_behind() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let baseline = Baseline::take(&mut stream);
    let x = filled(&mut stream, 6.0);
    let gate = Gate::close(&mut stream);
    let mut polled = stream.read_async(&x).unwrap();
    let bell = Arc::new(Bell::default());
    assert!(poll_with(&mut polled, &bell).is_pending());
    drop(polled);
    drop(stream.read_async(&x).unwrap());
    drop(x);
    gate.open();
    assert!(eventually(|| Arc::strong_count(&bell) == 1), "the waker went with the read");
    let y = filled(&mut stream, 7.0);
    assert!(all(&stream.read(&y).unwrap(), 7.0));
    drop(y);
    assert!(baseline.returns(&mut stream));
}

/// A task outlives the scope that started its read: the read must keep what it needs.
#[test]
fn a_future_outlives_its_buffer_and_its_stream_on_another_thread() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let x = filled(&mut stream, 8.0);
    let future = stream.read_async(&x).unwrap();
    drop((x, stream));
    let read = std::thread::spawn(move || block_on(future)).join().unwrap().unwrap();
    assert!(all(&read, 8.0));
}

/// A read takes what is there in its place of the order, not what is there when somebody looks.
#[test]
fn a_future_gives_what_was_there_when_it_was_asked_for() {
    let Some((device, _)) = working(2) else { return };
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = filled(&mut a, 1.0);
    let gate = Gate::close(&mut a);
    let future = a.read_async(&x).unwrap();
    b.fill(&mut x, 2.0).unwrap();
    gate.open();
    assert!(all(&block_on(future).unwrap(), 1.0));
    assert!(all(&b.read(&x).unwrap(), 2.0));
}

/// A task that awaits what can never come should not have to await it.
#[test]
fn a_read_of_what_has_no_memory_is_refused_at_once() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let mut recording = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let born = recording.alloc::<f32>(4).unwrap();
    assert!(matches!(stream.read_async(&born), Err(Error::StillRecording { .. })));
    drop(recording);
    assert!(matches!(stream.read_async(&born), Err(Error::NeverSealed { .. })));
}

/// What is decided where the work runs can only be told afterwards.
#[test]
fn a_failure_of_what_is_in_flight_comes_through_the_future() {
    let Some((device, k)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let (mut graph, born) = stream
        .record(|work| {
            let mut born = work.alloc_scratch::<f32>(LEN)?;
            work.launch(&k.fill, grid(), (&mut born, 1.0, Len))?;
            Ok(born)
        })
        .unwrap();
    let before = stream.read_async(&born).unwrap();
    graph.replay(&mut stream).unwrap();
    let after = stream.read_async(&born).unwrap();
    let mut x = filled(&mut stream, 0.0);
    fail_late(&mut stream, &mut x);
    let failed = stream.read_async(&x).unwrap();
    assert!(matches!(block_on(before), Err(Error::NotReplayed)));
    assert!(all(&block_on(after).unwrap(), 1.0));
    let error = block_on(failed).unwrap_err();
    assert!(matches!(error, Error::Tainted { .. }), "{error}");
    assert!(matches!(error.root(), Error::CallbackPanicked { .. }));
}

#[test]
fn an_empty_read_is_ready_at_once() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let nothing = stream.alloc::<f32>(0).unwrap();
    let mut future = stream.read_async(&nothing).unwrap();
    assert!(poll(&mut future).unwrap().unwrap().is_empty());
}
