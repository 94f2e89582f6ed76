//! The status record, through every way into a window and out of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dacapo::{Error, StreamId, WindowPhase};

use super::support::*;

/// What the record says of one stream, on a device without other windows.
fn says(device: &Device, stream: StreamId) -> Option<WindowPhase> {
    let status = device.captures();
    let phase = status.windows().first().map(|(_, phase)| *phase);
    let (active, recording) = (phase.is_some(), phase == Some(WindowPhase::Recording));
    assert_eq!((status.any_active(), status.any_recording()), (active, recording));
    assert_eq!((status.active_count(), status.recording_count()), (active.into(), recording.into()));
    assert_eq!(status.is_capturing(stream), active);
    phase
}

/// Each way out that forgot to say so would keep an autotuner from tuning for ever.
#[test]
fn every_transition_is_published() {
    let Some((device, _)) = working(1) else { return };
    let s = device.stream().unwrap();
    let id = s.id();
    assert_eq!(says(&device, id), None);
    let s = s.prepare().unwrap();
    assert_eq!(says(&device, id), Some(WindowPhase::Prepared));
    let s = s.cancel();
    assert_eq!(says(&device, id), None);
    let s = s.prepare().unwrap().begin().unwrap();
    assert_eq!(says(&device, id), Some(WindowPhase::Recording));
    let s = s.abort();
    assert_eq!(says(&device, id), None);
    let (graph, s) = s.prepare().unwrap().begin().unwrap().end().unwrap();
    assert_eq!(says(&device, id), None);
    drop((graph, s));
}

/// An early return or a panic is a way out too.
#[test]
fn a_dropped_stream_leaves_the_record_in_either_phase() {
    let Some((device, _)) = working(1) else { return };
    let prepared = device.stream().unwrap().prepare().unwrap();
    let id = prepared.id();
    drop(prepared);
    assert_eq!(says(&device, id), None);
    let recording = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let id = recording.id();
    assert_eq!(says(&device, id), Some(WindowPhase::Recording));
    drop(recording);
    assert_eq!(says(&device, id), None);
    let id = catch_unwind(AssertUnwindSafe(|| {
        let recording = device.stream().unwrap().prepare().unwrap().begin().unwrap();
        std::panic::panic_any(recording.id());
    }));
    assert_eq!(says(&device, *id.unwrap_err().downcast().unwrap()), None);
}

#[test]
fn a_refused_end_leaves_the_record() {
    let Some((device, _)) = working(1) else { return };
    let mut s = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let id = s.id();
    let mut two = device.stream().unwrap().alloc::<f32>(2).unwrap();
    assert!(s.write(&mut two, &[1.0]).is_err());
    let (s, error) = s.end().unwrap_err().into_parts();
    assert!(matches!(error, Error::LengthMismatch { .. }));
    assert_eq!(says(&device, id), None);
    drop(s);
}

/// The closure forms pass through the same phases, and leave them however the closure ends.
#[test]
fn record_and_capture_are_published_while_their_closure_runs_and_not_after_it() {
    let Some((device, _)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let id = s.id();
    let mut seen = Vec::new();
    let (graph, ()) = s
        .capture(|_| {
            seen.push(says(&device, id));
            Ok(())
        })
        .unwrap();
    drop(graph);
    assert_eq!(seen, [Some(WindowPhase::Prepared), Some(WindowPhase::Recording)]);
    assert_eq!(says(&device, id), None);
    assert!(s.record(|_| Err::<(), _>(Error::step("no"))).is_err());
    assert_eq!(says(&device, id), None);
    assert!(s.capture(|_| Err::<(), _>(Error::step("no"))).is_err());
    assert_eq!(says(&device, id), None);
    let panics = |pass| {
        let mut s = device.stream().unwrap();
        let step = |work: &mut Work<'_>| if work.pass() == pass { panic!("in a step") } else { Ok(()) };
        assert!(catch_unwind(AssertUnwindSafe(|| s.capture(step).map(drop))).is_err());
        assert_eq!(says(&device, s.id()), None);
    };
    panics(dacapo::Pass::WarmUp);
    panics(dacapo::Pass::Recording);
}

/// Nobody can end a forgotten stream's window but an evictor, and it harms nobody until then.
#[test]
fn a_forgotten_stream_stays_in_the_record_until_it_is_evicted() {
    let Some((device, k)) = working(1) else { return };
    let mut other = device.stream().unwrap();
    let mut x = other.alloc::<f32>(4).unwrap();
    let mut forgotten = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let (id, window) = (forgotten.id(), forgotten.window().unwrap());
    forgotten.launch(&k.inc, Grid::covering(4), (&mut x, Len)).unwrap();
    subject::forget(forgotten);
    assert_eq!(says(&device, id), Some(WindowPhase::Recording));
    other.launch(&k.inc, Grid::covering(4), (&mut x, Len)).unwrap();
    assert_eq!(other.read(&x).unwrap(), [1.0; 4]);
    assert_eq!(says(&device, id), Some(WindowPhase::Recording));
    assert_eq!(device.evict(window).unwrap().window(), window);
    assert_eq!(says(&device, id), None);
}

#[test]
fn an_eviction_is_published_whatever_the_owner_does() {
    let Some((device, _)) = working(1) else { return };
    let prepared = device.stream().unwrap().prepare().unwrap();
    device.evict(prepared.window().unwrap()).unwrap();
    assert_eq!(says(&device, prepared.id()), None);
    drop(prepared);
    let recording = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    device.evict(recording.window().unwrap()).unwrap();
    assert_eq!(says(&device, recording.id()), None);
    drop(recording);
    assert!(!device.captures().any_active());
}

/// Streams whose phase is known only at run time pass through the same record.
#[test]
fn the_transitions_of_any_stream_are_published() {
    let Some((device, _)) = working(1) else { return };
    let mut s = AnyStream::from(device.stream().unwrap());
    let id = s.stream_id();
    s.prepare().unwrap();
    assert_eq!(says(&device, id), Some(WindowPhase::Prepared));
    s.begin().unwrap();
    assert_eq!(says(&device, id), Some(WindowPhase::Recording));
    s.abort().unwrap();
    assert_eq!(says(&device, id), None);
    s.prepare().unwrap();
    s.cancel().unwrap();
    assert_eq!(says(&device, id), None);
}

/// The record lists windows by stream and generation, and tells devices apart.
#[test]
fn many_windows_are_open_at_once_and_each_is_listed() {
    let (Some((device, _)), Some((other, _))) = (working(2), working(2)) else { return };
    let idle = device.stream().unwrap();
    let prepared: Vec<_> = (0..10).map(|_| device.stream().unwrap().prepare().unwrap()).collect();
    let recording: Vec<_> =
        (0..10).map(|_| device.stream().unwrap().prepare().unwrap().begin().unwrap()).collect();
    let status = device.captures();
    assert_eq!((status.active_count(), status.recording_count()), (20, 10));
    let listed = status.windows();
    let of = |phase| listed.iter().filter(move |(_, found)| *found == phase).map(|(id, _)| *id);
    assert!(of(WindowPhase::Prepared).eq(prepared.iter().map(|s| s.window().unwrap())));
    assert!(of(WindowPhase::Recording).eq(recording.iter().map(|s| s.window().unwrap())));
    assert!(listed.iter().all(|(id, _)| status.is_capturing(id.stream())));
    assert!(!status.is_capturing(idle.id()));
    assert!(!other.captures().any_active());
    drop(prepared);
    assert_eq!((status.active_count(), status.recording_count()), (10, 10));
    drop(recording);
    assert_eq!((status.active_count(), status.recording_count()), (0, 0));
}

/// Who waits for recordings to end does not wait for warm-ups, and learns when he waited in vain.
#[test]
fn wait_idle_waits_for_recordings_and_for_nothing_else() {
    const LONG: Duration = Duration::from_secs(300);
    let Some((device, _)) = working(1) else { return };
    let status = device.captures();
    assert!(status.wait_idle(Duration::ZERO));
    let prepared = device.stream().unwrap().prepare().unwrap();
    assert!(status.wait_idle(Duration::ZERO), "a warm-up executes");
    let recording = prepared.begin().unwrap();
    assert!(!status.wait_idle(Duration::ZERO));
    assert!(!status.wait_idle(Duration::from_millis(1)));
    let (started, waits) = mpsc::channel();
    let waiter = thread::spawn(move || {
        started.send(()).unwrap();
        status.wait_idle(LONG)
    });
    waits.recv().unwrap();
    drop(recording.end().unwrap());
    assert!(waiter.join().unwrap());
}
