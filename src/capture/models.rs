//! Models of the record and of eviction: loom runs each through the interleavings of its threads, and through
//! every value that the orderings let a load return.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release --lib capture`.
#![forbid(unsafe_code)]

use std::time::Duration;

use loom::thread;

use super::gate::{Gate, GateState};
use super::status::{CaptureStatus, DeviceCaptures, WindowId, WindowPhase};
use super::sync::{Arc, AtomicUsize, Mutex, Ordering};
use crate::stream_id::StreamId;

/// Explores two threads in full, and three up to a number of forced switches, so that each ends in seconds.
fn model(threads: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = (threads > 2).then_some(3);
    builder.check(body);
}

fn stream() -> StreamId {
    StreamId::new(0, 1)
}

/// What a recording keeps alive. It counts its end, Relaxed, so that the count adds no order of its own.
struct Recorder {
    nodes: usize,
    dropped: Arc<AtomicUsize>,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// One window as a device keeps it: shared by the owner's stream and by whoever may evict it.
struct Window {
    id: WindowId,
    gate: Gate,
    recorder: Mutex<Option<Recorder>>,
}

/// The part of a device that windows pass through, reduced to the order of its steps.
struct Device {
    captures: DeviceCaptures,
    windows: Mutex<Vec<Arc<Window>>>,
    dropped: Arc<AtomicUsize>,
}

impl Device {
    fn new() -> Self {
        Self {
            captures: DeviceCaptures::new(),
            windows: Mutex::new(Vec::new()),
            dropped: Arc::new(AtomicUsize::new(0)),
        }
    }

    fn prepare(&self) -> Arc<Window> {
        let recorder = Recorder { nodes: 0, dropped: Arc::clone(&self.dropped) };
        let (id, recorder) = (self.captures.open(stream()), Mutex::new(Some(recorder)));
        let window = Arc::new(Window { id, gate: Gate::new(), recorder });
        self.windows.lock().push(Arc::clone(&window));
        window
    }

    fn begun(&self) -> Arc<Window> {
        let window = self.prepare();
        self.captures.begin(window.id);
        window
    }

    /// Any thread; true when this call took the window away from its owner.
    fn evict(&self, id: WindowId) -> bool {
        let found = self.windows.lock().iter().find(|window| window.id == id).cloned();
        let Some(window) = found else { return false };
        let mut recorder = window.recorder.lock();
        if !window.gate.try_evict() {
            return false;
        }
        let taken = recorder.take();
        drop(recorder);
        drop(taken);
        self.leave(id);
        true
    }

    /// The owner's `end`: the recording to seal, or what forbids it.
    fn end(&self, window: &Window) -> Result<Recorder, GateState> {
        let result = window.gate.try_seal().map(|()| {
            let recorder = window.recorder.lock().take();
            assert_eq!(window.gate.close(), GateState::Sealing, "only its owner moves a sealing window");
            recorder.unwrap_or_else(|| unreachable!("a window that seals has its recording"))
        });
        if result.is_err() {
            // Under this lock the evictor also says who it was, which the owner is about to report.
            assert!(window.recorder.lock().is_none(), "an owner who lost finds the eviction done");
        }
        self.leave(window.id);
        result
    }

    /// The owner's `abort`, or the drop of its stream.
    fn discard(&self, window: &Window) -> GateState {
        let found = window.gate.close();
        drop(window.recorder.lock().take());
        self.leave(window.id);
        found
    }

    fn leave(&self, id: WindowId) {
        self.captures.close(id);
        self.windows.lock().retain(|window| window.id != id);
    }

    fn dropped(&self) -> usize {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// A thread that evicts; it returns whether it won.
fn evicting(device: &Arc<Device>, id: WindowId) -> thread::JoinHandle<bool> {
    let device = Arc::clone(device);
    thread::spawn(move || device.evict(id))
}

/// The owner's launch: whether it was recorded; if not, the window is over.
fn record(window: &Window) -> bool {
    let mut recorder = window.recorder.lock();
    match recorder.as_mut() {
        Some(recorder) => {
            recorder.nodes += 1;
            true
        }
        None => {
            assert_ne!(window.gate.state(), GateState::Open, "the recording leaves once the gate is shut");
            false
        }
    }
}

fn new_record() -> (Arc<DeviceCaptures>, CaptureStatus) {
    let captures = DeviceCaptures::new();
    let status = captures.status();
    (Arc::new(captures), status)
}

fn counts(status: &CaptureStatus) -> (usize, usize) {
    (status.active_count(), status.recording_count())
}

/// A count published after the news of it would let an autotuner run its trials inside a recording.
#[test]
fn a_reader_told_of_a_transition_sees_it_in_the_counts() {
    model(2, || {
        let (captures, status) = new_record();
        let news = Arc::new(AtomicUsize::new(0));
        let owner = thread::spawn({
            let (captures, news) = (Arc::clone(&captures), Arc::clone(&news));
            move || {
                let id = captures.open(stream());
                news.store(1, Ordering::Release);
                captures.begin(id);
                news.store(2, Ordering::Release);
            }
        });
        let told = news.load(Ordering::Acquire);
        assert!(told < 1 || (status.any_active() && status.is_capturing(stream())));
        assert!(told < 2 || status.any_recording());
        owner.join().unwrap();
        assert_eq!(counts(&status), (1, 1));
    });
}

/// The same of the end of a window: a count that lagged would keep an idle device refusing.
#[test]
fn a_reader_told_of_the_close_sees_an_idle_device() {
    model(2, || {
        let (captures, status) = new_record();
        let id = captures.open(stream());
        captures.begin(id);
        let news = Arc::new(AtomicUsize::new(0));
        let owner = thread::spawn({
            let (captures, news) = (Arc::clone(&captures), Arc::clone(&news));
            move || {
                captures.close(id);
                news.store(1, Ordering::Release);
            }
        });
        if news.load(Ordering::Acquire) == 1 {
            assert_eq!(counts(&status), (0, 0));
            assert!(!status.is_capturing(stream()) && status.windows().is_empty());
        }
        owner.join().unwrap();
    });
}

/// Whoever learns of a transition from a count alone sees what led to it, as from any other synchronisation.
#[test]
fn a_count_carries_what_preceded_the_transition() {
    model(2, || {
        let (captures, status) = new_record();
        let before = Arc::new(AtomicUsize::new(0));
        let owner = thread::spawn({
            let (captures, before) = (Arc::clone(&captures), Arc::clone(&before));
            move || {
                let id = captures.open(stream());
                before.store(1, Ordering::Relaxed);
                captures.begin(id);
            }
        });
        assert!(!status.any_recording() || before.load(Ordering::Relaxed) == 1);
        owner.join().unwrap();
    });
}

/// Stored the other way round, the last close could be seen as a recording on a device without a window.
#[test]
fn a_reader_of_an_idle_device_sees_nothing_recording() {
    model(2, || {
        let (captures, status) = new_record();
        let id = captures.open(stream());
        captures.begin(id);
        let owner = thread::spawn(move || captures.close(id));
        assert!(status.any_active() || !status.any_recording());
        owner.join().unwrap();
    });
}

/// Counts kept by increments could be seen between two updates, above the number of windows that there are.
#[test]
fn counts_of_two_owners_never_exceed_their_windows() {
    model(3, || {
        let (captures, status) = new_record();
        let first = captures.open(stream());
        captures.begin(first);
        let leaver = thread::spawn({
            let captures = Arc::clone(&captures);
            move || captures.close(first)
        });
        let comer = thread::spawn(move || {
            let second = captures.open(StreamId::new(0, 2));
            captures.begin(second);
        });
        let (active, recording) = counts(&status);
        assert!(active <= 2 && recording <= 2);
        let windows = status.windows();
        let records = windows.iter().filter(|(_, phase)| *phase == WindowPhase::Recording).count();
        assert!(windows.len() <= 2 && records <= windows.len());
        leaver.join().unwrap();
        comer.join().unwrap();
        assert_eq!(counts(&status), (1, 1));
    });
}

/// A close that forgot to notify, or notified before its change, would leave a waiter asleep: a deadlock
/// here.
#[test]
fn a_waiter_is_woken_by_the_last_close() {
    model(3, || {
        let (captures, status) = new_record();
        let ids = [1, 2].map(|index| captures.open(StreamId::new(0, index)));
        ids.iter().for_each(|id| captures.begin(*id));
        let owners = ids.map(|id| {
            let captures = Arc::clone(&captures);
            thread::spawn(move || captures.close(id))
        });
        assert!(status.wait_idle(Duration::MAX));
        assert!(!status.any_recording());
        owners.into_iter().for_each(|owner| owner.join().unwrap());
    });
}

/// A reader who sees the window over, while what it kept alive is not yet let go, would reuse it too early.
#[test]
fn a_reader_beside_a_drop_or_an_eviction_sees_the_window_or_none() {
    let discards = |device: &Device, window: &Window| device.discard(window) == GateState::Open;
    let evicts = |device: &Device, window: &Window| device.evict(window.id);
    for ends in [discards as fn(&Device, &Window) -> bool, evicts] {
        model(2, move || {
            let device = Device::new();
            let (status, window) = (device.captures.status(), device.begun());
            let (id, dropped) = (window.id, Arc::clone(&device.dropped));
            let ending = thread::spawn(move || assert!(ends(&device, &window)));
            let seen = status.windows();
            assert!(seen.is_empty() || seen == [(id, WindowPhase::Recording)]);
            assert!(!seen.is_empty() || (!status.any_active() && dropped.load(Ordering::Relaxed) == 1));
            ending.join().unwrap();
            assert_eq!(counts(&status), (0, 0));
        });
    }
}

/// Both ends run to their last step; the recording must go once, and the window must leave the record once.
#[test]
fn a_drop_and_an_eviction_discard_the_recording_once() {
    model(2, || {
        let device = Arc::new(Device::new());
        let window = device.begun();
        let evictor = evicting(&device, window.id);
        let found = device.discard(&window);
        assert_eq!(evictor.join().unwrap(), found == GateState::Evicted);
        assert_eq!(device.dropped(), 1);
        assert_eq!(counts(&device.captures.status()), (0, 0));
    });
}

/// Were both to win, a graph would replay over buffers that had lost their pins.
#[test]
fn of_an_eviction_and_an_end_exactly_one_wins() {
    model(2, || {
        let device = Arc::new(Device::new());
        let window = device.begun();
        let evictor = evicting(&device, window.id);
        let recorded = record(&window);
        let sealed = device.end(&window);
        let evicted = evictor.join().unwrap();
        match sealed {
            Ok(recorder) => {
                assert!(!evicted && recorded);
                assert_eq!((recorder.nodes, device.dropped()), (1, 0));
            }
            Err(state) => {
                assert!(evicted);
                assert_eq!((state, device.dropped()), (GateState::Evicted, 1));
            }
        }
        assert!(!record(&window), "nothing records after the end");
        assert_eq!(device.dropped(), 1);
    });
}

/// Two reports of one eviction would each blame their caller.
#[test]
fn of_two_evictors_exactly_one_wins() {
    model(2, || {
        let device = Arc::new(Device::new());
        let window = device.begun();
        let id = window.id;
        let other = evicting(&device, id);
        let here = device.evict(id);
        assert_ne!(here, other.join().unwrap());
        assert_eq!((window.gate.state(), device.dropped()), (GateState::Evicted, 1));
    });
}

/// An owner that went on recording would pin again what the eviction had just let go.
#[test]
fn the_owner_finds_its_recording_gone_after_an_eviction() {
    model(2, || {
        let device = Arc::new(Device::new());
        let window = device.begun();
        let over = Arc::new(AtomicUsize::new(0));
        let evictor = thread::spawn({
            let (device, over, id) = (Arc::clone(&device), Arc::clone(&over), window.id);
            move || {
                assert!(device.evict(id));
                over.store(1, Ordering::Release);
            }
        });
        let over = over.load(Ordering::Acquire) == 1;
        assert!(!(record(&window) && over));
        evictor.join().unwrap();
        assert!(!record(&window));
        assert_eq!(device.end(&window).err(), Some(GateState::Evicted));
        assert_eq!(device.dropped(), 1);
    });
}

/// An eviction on its way while the window ends must not end the window that the same stream opens next.
#[test]
fn an_eviction_never_hits_the_next_window_of_the_stream() {
    model(2, || {
        let device = Arc::new(Device::new());
        let first = device.begun();
        let id = first.id;
        let evictor = evicting(&device, id);
        let sealed = device.end(&first);
        let next = device.begun();
        assert_ne!(next.id, id);
        assert!(record(&next));
        assert_eq!(evictor.join().unwrap(), sealed.is_err());
        assert_eq!((next.gate.state(), counts(&device.captures.status())), (GateState::Open, (1, 1)));
        assert_eq!(device.end(&next).map(|recorder| recorder.nodes).ok(), Some(1));
        drop(sealed);
        assert_eq!(device.dropped(), 2);
    });
}

/// An evicted window that its owner's `begin` brought back to the record would stay there for ever.
#[test]
fn of_an_eviction_and_a_begin_the_window_stays_over() {
    model(2, || {
        let device = Arc::new(Device::new());
        let window = device.prepare();
        let evictor = evicting(&device, window.id);
        device.captures.begin(window.id);
        assert!(evictor.join().unwrap());
        assert_eq!(counts(&device.captures.status()), (0, 0));
        assert!(!record(&window));
    });
}
