//! The status record: which windows of a device are open, for whoever must know without holding a stream.
#![forbid(unsafe_code)]

use std::fmt;
use std::time::{Duration, Instant};

use static_assertions::{assert_impl_all, assert_not_impl_any};

use super::sync::{Arc, AtomicUsize, Condvar, Mutex, Ordering};
use crate::stream_id::StreamId;

/// Which window, of which stream. Its generation is never given again on that device, so an id kept too long
/// names a window that is over, never a later one of the same stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WindowId {
    stream: StreamId,
    generation: u64,
}

assert_impl_all!(WindowId: Copy, Send, Sync, std::hash::Hash, fmt::Display);

impl WindowId {
    /// The stream whose window this is.
    pub const fn stream(self) -> StreamId {
        self.stream
    }

    /// The number of this window among those of its device, counted from 1 in the order of their `prepare`.
    pub const fn generation(self) -> u64 {
        self.generation
    }
}

impl fmt::Display for WindowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "window {} on {}", self.generation, self.stream)
    }
}

/// How far an open window has come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WindowPhase {
    /// Warming up: between `prepare` and `begin`, where work executes.
    Prepared,
    /// Recording: between `begin` and the end of the capture, where work is listed and nothing executes.
    Recording,
}

impl fmt::Display for WindowPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prepared => "prepared",
            Self::Recording => "recording",
        })
    }
}

/// The writing side of one device's record, for the code that owns the transitions and nobody else.
///
/// `open` makes a window prepared, `begin` makes it recording, `close` ends it from either. Each costs time
/// in the number of windows open at that moment, and allocates only when more are open than ever before.
#[derive(Debug)]
pub(crate) struct DeviceCaptures {
    record: Arc<Record>,
}

assert_impl_all!(DeviceCaptures: Send, Sync);
// A copy could outlive the owner of the transitions, and publish some that never took place.
assert_not_impl_any!(DeviceCaptures: Clone);

impl DeviceCaptures {
    /// The record of a device on which nothing captures yet.
    pub(crate) fn new() -> Self {
        let record = Record {
            entries: Mutex::new(Entries::default()),
            counts: Counts { active: AtomicUsize::new(0), recording: AtomicUsize::new(0) },
            idle: Condvar::new(),
        };
        Self { record: Arc::new(record) }
    }

    /// Notes that `stream` has prepared, and names the window that this opens.
    pub(crate) fn open(&self, stream: StreamId) -> WindowId {
        self.record.change(|entries| entries.open(stream))
    }

    /// Notes that a prepared window has begun to record. One that was evicted in between stays over.
    pub(crate) fn begin(&self, id: WindowId) {
        self.record.change(|entries| entries.begin(id));
    }

    /// Notes that a window is over, whichever way it ended. Says nothing when it was over already, so that an
    /// owner and an evictor may both say so.
    pub(crate) fn close(&self, id: WindowId) {
        self.record.change(|entries| entries.windows.retain(|(window, _)| *window != id));
    }

    /// The reading side.
    pub(crate) fn status(&self) -> CaptureStatus {
        CaptureStatus { record: Arc::clone(&self.record) }
    }
}

/// What captures on one device at this moment: a read-only view that any thread may hold, clone and keep.
///
/// Code that must decide the same way in a warm-up and in the recording after it (an autotuner, a cache of
/// kernels) asks here, from any thread, before every launch.
///
/// | transition | effect |
/// | --- | --- |
/// | `prepare` | `any_active` becomes true |
/// | `begin` | `any_recording` becomes true |
/// | `cancel`, `end`, `abort`, drop, eviction | each is false again, if this was the last such window |
///
/// Whoever has learned of a transition in a way that synchronises (a channel, a lock, a join, an atomic) sees
/// it in every answer. The window of a forgotten stream stays in the record until it is evicted.
#[derive(Clone, Debug)]
pub struct CaptureStatus {
    record: Arc<Record>,
}

assert_impl_all!(CaptureStatus: Send, Sync, Clone, fmt::Debug);

impl CaptureStatus {
    /// Whether any window of the device is open, prepared or recording. One atomic load.
    #[inline]
    pub fn any_active(&self) -> bool {
        self.active_count() > 0
    }

    /// Whether any window of the device records. One atomic load.
    #[inline]
    pub fn any_recording(&self) -> bool {
        self.recording_count() > 0
    }

    /// How many windows of the device are open, prepared or recording. One atomic load.
    #[inline]
    pub fn active_count(&self) -> usize {
        // Acquire, pairing with the Release in `Record::change`.
        self.record.counts.active.load(Ordering::Acquire)
    }

    /// How many windows of the device record. One atomic load.
    #[inline]
    pub fn recording_count(&self) -> usize {
        // Acquire, pairing with the Release in `Record::change`.
        self.record.counts.recording.load(Ordering::Acquire)
    }

    /// Whether `stream` has a window open: true from `prepare` until the capture ends, however it ends.
    ///
    /// Takes no lock while nothing captures on the device, so it may be asked before every launch. The stream
    /// of another device is never found here.
    #[inline]
    pub fn is_capturing(&self, stream: StreamId) -> bool {
        self.any_active() && self.record.entries.lock().windows.iter().any(|(id, _)| id.stream == stream)
    }

    /// The windows that are open at this moment, oldest first: a copy, perhaps out of date when it arrives.
    pub fn windows(&self) -> Vec<(WindowId, WindowPhase)> {
        if self.any_active() { self.record.entries.lock().windows.clone() } else { Vec::new() }
    }

    /// Waits until nothing records on the device, for `timeout` at most, and returns whether that came about.
    ///
    /// It is enough that nothing recorded for a moment since the call: one who waits is not kept waiting by
    /// windows that begin afterwards, and must expect them. A timeout too long for the clock is a wait
    /// without end. A thread that holds a recording stream waits for itself here, until the timeout. Inside a kernel
    /// or host callback it does not wait, and tells what is so at the moment: whoever records may be waiting for it.
    #[must_use]
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        if crate::callback::inside() {
            return !self.any_recording();
        }
        !self.any_recording() || self.record.wait_idle(Instant::now().checked_add(timeout))
    }
}

/// What both sides share.
struct Record {
    entries: Mutex<Entries>,
    counts: Counts,
    /// Notified whenever the last window that recorded is over.
    idle: Condvar,
}

/// What the queries load, apart from the lock that transitions take: a reader shares a cache line with a writer only
/// for as long as that writer publishes.
#[repr(align(128))]
struct Counts {
    /// How many entries there are.
    active: AtomicUsize,
    /// How many of them record.
    recording: AtomicUsize,
}

impl Record {
    /// Applies one transition and publishes the counts that follow from it, before anyone else has the lock.
    fn change<R>(&self, transition: impl FnOnce(&mut Entries) -> R) -> R {
        let mut entries = self.entries.lock();
        let recorded = entries.recording();
        let result = transition(&mut entries);
        let records = entries.recording();
        // The lock orders all writers, so each store replaces an older truth. Whoever learned of a transition
        // through any synchronisation loads after these stores, and by coherence alone gets them or later
        // ones. Release adds the reverse: whoever learns of it from a count sees all that led to it. Nobody
        // needs one total order of the counts and an atomic of his own, so SeqCst would buy nothing.
        //
        // `recording` goes first, so that a reader of `active == 0` cannot then read an older `recording`, as
        // if a device without a window were recording.
        self.counts.recording.store(records, Ordering::Release);
        self.counts.active.store(entries.windows.len(), Ordering::Release);
        if recorded > 0 && records == 0 {
            entries.idle_moments += 1;
            self.idle.notify_all();
        }
        result
    }

    /// Waits until nothing records; `None` is a wait without end.
    fn wait_idle(&self, deadline: Option<Instant>) -> bool {
        let mut entries = self.entries.lock();
        let seen = entries.idle_moments;
        while !entries.idle_since(seen) {
            match deadline {
                None => self.idle.wait(&mut entries),
                // The last close may have come between the timeout and the lock, so look again.
                Some(deadline) if self.idle.wait_until(&mut entries, deadline) => {
                    return entries.idle_since(seen);
                }
                Some(_) => {}
            }
        }
        true
    }
}

impl fmt::Debug for Record {
    /// Prints the counts and leaves the lock alone: a debugger's print must not wait.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: two numbers for a person to read, which nothing is concluded from.
        let active = self.counts.active.load(Ordering::Relaxed);
        let recording = self.counts.recording.load(Ordering::Relaxed);
        write!(f, "Record {{ active: {active}, recording: {recording}, .. }}")
    }
}

/// The truth that the counts are computed from.
#[derive(Default)]
struct Entries {
    /// The open windows, oldest first.
    windows: Vec<(WindowId, WindowPhase)>,
    /// The generation given last; at one window a nanosecond it would last for 584 years.
    last_generation: u64,
    /// How often the device went from recording to not recording.
    idle_moments: u64,
}

impl Entries {
    fn open(&mut self, stream: StreamId) -> WindowId {
        self.last_generation += 1;
        let id = WindowId { stream, generation: self.last_generation };
        self.windows.push((id, WindowPhase::Prepared));
        id
    }

    fn begin(&mut self, id: WindowId) {
        if let Some((_, phase)) = self.windows.iter_mut().find(|(window, _)| *window == id) {
            *phase = WindowPhase::Recording;
        }
    }

    fn recording(&self) -> usize {
        self.windows.iter().filter(|(_, phase)| *phase == WindowPhase::Recording).count()
    }

    /// Whether there was a moment without a recording since `idle_moments` was `seen`. To look only at what
    /// records now would not do: the next window may begin before a thread that was woken has the lock, so
    /// that it would sleep for ever on a device that is busy in turns.
    fn idle_since(&self, seen: u64) -> bool {
        self.idle_moments != seen || self.recording() == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::{DeviceCaptures, WindowId, WindowPhase};
    use crate::stream_id::StreamId;

    const LONG: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(5);

    fn stream(index: u64) -> StreamId {
        StreamId::new(0, index)
    }

    fn recording(captures: &DeviceCaptures, index: u64) -> WindowId {
        let id = captures.open(stream(index));
        captures.begin(id);
        id
    }

    /// A record that answered only for recordings would let an autotuner decide differently in the warm-up.
    #[test]
    fn a_stream_captures_from_prepare_until_the_capture_ends() {
        let captures = DeviceCaptures::new();
        let status = captures.status();
        assert!(!status.is_capturing(stream(1)));

        let id = captures.open(stream(1));
        assert!(status.is_capturing(stream(1)) && status.any_active() && !status.any_recording());
        assert_eq!(status.windows(), [(id, WindowPhase::Prepared)]);

        captures.begin(id);
        assert!(status.is_capturing(stream(1)) && status.any_active() && status.any_recording());
        assert_eq!(status.windows(), [(id, WindowPhase::Recording)]);

        captures.close(id);
        assert!(!status.is_capturing(stream(1)) && !status.any_active() && !status.any_recording());
        assert_eq!(status.windows(), []);
    }

    /// One answer for the whole device would make every stream look as if it captured.
    #[test]
    fn a_window_says_nothing_about_other_streams_and_devices() {
        let captures = DeviceCaptures::new();
        let _open = captures.open(stream(1));
        assert!(!captures.status().is_capturing(stream(2)));
        assert!(!captures.status().is_capturing(StreamId::new(1, 1)));
    }

    /// A count kept by increments would go below zero when the owner and an evictor both close.
    #[test]
    fn closing_twice_changes_the_counts_once() {
        let captures = DeviceCaptures::new();
        let (first, _second) = (recording(&captures, 1), recording(&captures, 2));
        captures.close(first);
        captures.close(first);
        assert_eq!((captures.status().active_count(), captures.status().recording_count()), (1, 1));
    }

    /// Windows told apart by stream alone would let a late `begin` or `close` reach the next one.
    #[test]
    fn an_old_id_never_reaches_the_next_window_of_its_stream() {
        let captures = DeviceCaptures::new();
        let old = captures.open(stream(1));
        captures.close(old);
        let new = captures.open(stream(1));
        assert_ne!(old, new);
        captures.begin(old);
        captures.close(old);
        assert_eq!(captures.status().windows(), [(new, WindowPhase::Prepared)]);
    }

    /// A list that gave its memory back would allocate on every `prepare`.
    #[test]
    fn the_list_keeps_its_capacity() {
        let captures = DeviceCaptures::new();
        let capacity = || captures.record.entries.lock().windows.capacity();
        captures.close(captures.open(stream(0)));
        let warm = capacity();
        (1..1000).for_each(|index| captures.close(captures.open(stream(index))));
        assert_eq!(capacity(), warm);
    }

    /// Preparing is executing: a wait that counted it could wait for the whole life of a service.
    #[test]
    fn a_prepared_window_keeps_nobody_waiting() {
        let captures = DeviceCaptures::new();
        let _open = captures.open(stream(1));
        assert!(captures.status().wait_idle(Duration::ZERO));
    }

    #[test]
    fn a_wait_ends_at_its_timeout_while_something_records() {
        let captures = DeviceCaptures::new();
        let _open = recording(&captures, 1);
        assert!(!captures.status().wait_idle(SHORT));
        assert!(!captures.status().wait_idle(Duration::ZERO));
    }

    /// A deadline computed by plain addition would panic here.
    #[test]
    fn the_longest_timeout_waits_until_the_last_recording_ends() {
        let captures = DeviceCaptures::new();
        let (first, last) = (recording(&captures, 1), recording(&captures, 2));
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| tell.send(captures.status().wait_idle(Duration::MAX)));
            captures.close(first);
            assert!(told.recv_timeout(SHORT).is_err(), "one of two recordings has ended");
            captures.close(last);
            assert_eq!(told.recv_timeout(LONG), Ok(true));
        });
    }

    /// A waiter that looked only at what records now would miss every gap of a device that records in turns.
    #[test]
    fn an_idle_moment_counts_even_if_the_next_recording_has_begun() {
        let captures = DeviceCaptures::new();
        let id = recording(&captures, 1);
        let seen = captures.record.entries.lock().idle_moments;
        assert!(!captures.record.entries.lock().idle_since(seen));
        captures.close(id);
        let _next = recording(&captures, 1);
        assert!(captures.record.entries.lock().idle_since(seen));
    }
}
