//! What it costs to ask whether anything captures, against one relaxed atomic load.
//!
//! **Measured.** `any_active`, `any_recording` and `is_capturing`, with 0, 1, 8 and 64 windows open, and while another
//! thread opens and closes windows without a pause. The first table's base is a relaxed load of an atomic that nobody
//! writes; the second's is one of an atomic that another thread writes as often as windows change: what a load costs
//! there is the machine's price for sharing a cache line, whoever asks. The target is a ratio of at most 1.5 in both.
//!
//! **How it can mislead.** A load alone takes less than a nanosecond and overlaps with its neighbours, so that these are
//! throughputs of a loop, not latencies; and a loop of a few instructions moves by tens of percent with its alignment.
//! `is_capturing` with windows open takes a lock and looks through them: those rows are for information. The busy rows
//! need two cores that nobody else uses; with one, the two threads take turns and nothing is shared.

mod support;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use dacapo::{CaptureStatus, Device, Recording, Stream, StreamId};
use support::{Cost, Table, timed};

/// Loads an iteration, so that its own cost does not count.
const LOADS: u64 = 64;

fn loads(iterations: u64, mut load: impl FnMut()) -> Cost {
    timed(iterations, || (0..LOADS).for_each(|_| load()))
}

/// A device with so many windows that record.
struct Busy {
    _open: Vec<Stream<Recording>>,
    status: CaptureStatus,
    /// A stream that has no window.
    idle: StreamId,
}

impl Busy {
    fn new(windows: usize) -> Self {
        let device = Device::host().unwrap();
        let open = || device.stream().unwrap().prepare().unwrap().begin().unwrap();
        let open: Vec<_> = (0..windows).map(|_| open()).collect();
        let (status, idle) = (device.captures(), device.stream().unwrap().id());
        assert_eq!((status.any_active(), status.active_count()), (windows > 0, windows));
        assert_eq!((status.any_recording(), status.is_capturing(idle)), (windows > 0, false));
        Busy { _open: open, status, idle }
    }
}

fn at_rest(criterion: &mut criterion::Criterion) {
    let atomic = AtomicUsize::new(0);
    let devices = [0, 1, 8, 64].map(|windows| (windows, Busy::new(windows)));
    let mut table = Table::new("status", "query");
    table.row("relaxed load", LOADS, |iterations| {
        loads(iterations, || {
            black_box(black_box(&atomic).load(Ordering::Relaxed) > 0);
        })
    });
    for (windows, device) in &devices {
        table.row(format!("any_active, {windows} windows"), LOADS, move |iterations| {
            loads(iterations, || {
                black_box(black_box(&device.status).any_active());
            })
        });
        table.row(format!("any_recording, {windows} windows"), LOADS, move |iterations| {
            loads(iterations, || {
                black_box(black_box(&device.status).any_recording());
            })
        });
        table.row(format!("is_capturing, {windows} windows"), LOADS, move |iterations| {
            loads(iterations, || {
                black_box(black_box(&device.status).is_capturing(device.idle));
            })
        });
    }
    table.run(criterion);
}

/// Another thread that opens and closes windows, and writes to an atomic as often, for as long as `f` runs.
fn beside_transitions(f: impl FnOnce(&AtomicUsize, &CaptureStatus)) {
    /// Alone in its cache line, as the record's own counts are.
    #[repr(align(128))]
    struct Alone(AtomicUsize);
    let device = Device::host().unwrap();
    let (atomic, over) = (Alone(AtomicUsize::new(0)), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = device.stream().unwrap();
            while !over.load(Ordering::Relaxed) {
                let recording = stream.prepare().unwrap().begin().unwrap();
                atomic.0.store(1, Ordering::Release);
                atomic.0.store(2, Ordering::Release);
                stream = recording.abort();
                atomic.0.store(0, Ordering::Release);
            }
        });
        f(&atomic.0, &device.captures());
        over.store(true, Ordering::Relaxed);
    });
    assert!(!device.captures().any_active());
}

fn while_windows_change(criterion: &mut criterion::Criterion) {
    beside_transitions(|atomic, status| {
        let mut table = Table::new("status while windows open and close", "query");
        table.row("relaxed load of an atomic that is written", LOADS, |iterations| {
            loads(iterations, || {
                black_box(black_box(atomic).load(Ordering::Relaxed) > 0);
            })
        });
        table.row("any_active", LOADS, |iterations| {
            loads(iterations, || {
                black_box(black_box(status).any_active());
            })
        });
        table.run(criterion);
    });
}

fn main() {
    let mut criterion = support::criterion();
    at_rest(&mut criterion);
    while_windows_change(&mut criterion);
    criterion.final_summary();
}
