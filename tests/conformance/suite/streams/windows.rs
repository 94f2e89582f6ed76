//! Windows that move between threads, many of them, and one that nobody comes back to.

use std::thread;

use dacapo::{Error, WindowPhase};

use super::support::*;

/// Capture state that lived in a thread would be lost, or left behind, on the way.
#[test]
fn every_transition_may_happen_on_a_thread_of_its_own() {
    let Some((device, k)) = working(2) else { return };
    let k = std::sync::Arc::new(k);
    let mut stream = device.stream().unwrap();
    let x = filled(&mut stream, 1.0);
    let mut y = filled(&mut stream, 0.0);
    let prepared = thread::spawn(move || stream.prepare().unwrap()).join().unwrap();
    let window = prepared.window().unwrap();
    let recording = thread::spawn(move || prepared.begin().unwrap()).join().unwrap();
    assert_eq!(recording.window(), Some(window));
    let kernels = k.clone();
    let (recording, y) = thread::spawn(move || {
        let mut recording = recording;
        recording.launch(&kernels.add1, grid(), (&x, &mut y, Len, Len)).unwrap();
        (recording, y)
    })
    .join()
    .unwrap();
    let (graph, stream) = thread::spawn(move || recording.end().unwrap()).join().unwrap();
    let mut stream = thread::spawn(move || {
        let (mut graph, mut stream) = (graph, stream);
        graph.replay(&mut stream).unwrap();
        stream
    })
    .join()
    .unwrap();
    assert!(all(&stream.read(&y).unwrap(), 2.0));
    assert_usable(&mut stream, &k);
}

/// A window closes wherever its stream happens to be dropped.
#[test]
fn a_window_that_is_dropped_cancelled_or_aborted_on_another_thread_is_closed() {
    let Some((device, k)) = working(1) else { return };
    let status = device.captures();
    let prepared = device.stream().unwrap().prepare().unwrap();
    let recording = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let cancelled = device.stream().unwrap().prepare().unwrap();
    let aborted = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    assert_eq!((status.active_count(), status.recording_count()), (4, 2));
    let (mut a, mut b) = thread::spawn(move || {
        drop((prepared, recording));
        (cancelled.cancel(), aborted.abort())
    })
    .join()
    .unwrap();
    assert_eq!((status.active_count(), status.recording_count()), (0, 0));
    assert_usable(&mut a, &k);
    assert_usable(&mut b, &k);
}

/// One queue, many windows, and every launch in the window of its own stream.
#[test]
fn any_number_of_windows_may_be_open_at_once() {
    const WINDOWS: usize = 50;
    let Some((device, k)) = working(2) else { return };
    let status = device.captures();
    let mut neighbour = device.stream().unwrap();
    let mut counters: Vec<_> = (0..WINDOWS).map(|_| neighbour.alloc::<f32>(LEN).unwrap()).collect();
    let mut open: Vec<_> =
        (0..WINDOWS).map(|_| device.stream().unwrap().prepare().unwrap().begin().unwrap()).collect();
    assert_eq!((status.active_count(), status.recording_count()), (WINDOWS, WINDOWS));
    for round in 0..3 {
        for (i, (recording, c)) in open.iter_mut().zip(&mut counters).enumerate() {
            // As many launches as its number says, up to three.
            if round <= i % 3 {
                recording.launch(&k.inc, grid(), (&mut *c, Len)).unwrap();
            }
        }
        // Beside them all, a neighbour works, waits and captures.
        assert_usable(&mut neighbour, &k);
    }
    // Not in the order in which they were opened: every other one first, and from the back.
    let mut graphs = Vec::new();
    let mut later = Vec::new();
    for (i, recording) in open.into_iter().enumerate().rev() {
        if i % 2 == 0 { graphs.push((i, recording.end().unwrap())) } else { later.push((i, recording)) }
    }
    assert_eq!(status.recording_count(), WINDOWS / 2);
    graphs.extend(later.into_iter().map(|(i, recording)| (i, recording.end().unwrap())));
    assert!(!status.any_active());
    for (i, (graph, stream)) in &mut graphs {
        assert_eq!(graph.nodes(), *i % 3 + 1);
        graph.replay(stream).unwrap();
    }
    for (i, c) in counters.iter().enumerate() {
        assert!(all(&neighbour.read(c).unwrap(), (i % 3 + 1) as f32));
    }
}

/// A buffer has a number in each recording that uses it: one that was taken for another recording's would make a graph of the
/// wrong buffers.
#[test]
fn two_windows_that_meet_the_same_buffers_in_another_order_record_their_own() {
    let Some((device, k)) = working(2) else { return };
    let mut neighbour = device.stream().unwrap();
    let (mut x, mut y) = (filled(&mut neighbour, 1.0), filled(&mut neighbour, 10.0));
    let begin = || device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let (mut one, mut other) = (begin(), begin());
    for _ in 0..2 {
        one.launch(&k.inc, grid(), (&mut x, Len)).unwrap();
        other.launch(&k.inc, grid(), (&mut y, Len)).unwrap();
        one.launch(&k.add1, grid(), (&x, &mut y, Len, Len)).unwrap();
        other.launch(&k.add1, grid(), (&y, &mut x, Len, Len)).unwrap();
    }
    let ((mut one, mut first), (mut other, mut second)) = (one.end().unwrap(), other.end().unwrap());
    one.replay(&mut first).unwrap();
    assert!(all(&neighbour.read(&x).unwrap(), 3.0) && all(&neighbour.read(&y).unwrap(), 4.0));
    other.replay(&mut second).unwrap();
    assert!(all(&neighbour.read(&x).unwrap(), 7.0) && all(&neighbour.read(&y).unwrap(), 6.0));
}

/// A stream that is leaked runs no destructor: its window must cost its neighbours nothing, and be found and ended.
#[test]
fn a_forgotten_recording_harms_nobody_until_it_is_evicted() {
    let Some((device, k)) = working(1) else { return };
    let status = device.captures();
    let mut neighbour = device.stream().unwrap();
    let mut x = filled(&mut neighbour, 1.0);
    let kept = filled(&mut neighbour, 2.0);
    let only_there = filled(&mut neighbour, 3.0);
    neighbour.sync().unwrap();
    let in_use = device.memory_usage().in_use;
    let forgotten = device.stream().unwrap();
    let id = forgotten.id();
    let mut recording = forgotten.prepare().unwrap().begin().unwrap();
    recording.launch(&k.add1, grid(), (&only_there, &mut x, Len, Len)).unwrap();
    let mut born = recording.alloc::<f32>(LEN).unwrap();
    recording.launch(&k.add1, grid(), (&kept, &mut born, Len, Len)).unwrap();
    subject::forget(recording);
    drop(only_there);

    for _ in 0..3 {
        assert_usable(&mut neighbour, &k);
    }
    assert!(all(&neighbour.read(&x).unwrap(), 1.0), "nothing that it recorded ran");
    assert!(matches!(neighbour.read(&born), Err(Error::StillRecording { .. })));
    assert!(status.is_capturing(id));
    assert_eq!(device.memory_usage().in_use, in_use, "what it touched is pinned");

    let [(window, WindowPhase::Recording)] = status.windows()[..] else {
        panic!("its window is the only one")
    };
    assert_eq!(window.stream(), id);
    let report = device.evict(window).unwrap();
    assert_eq!(report.window(), window);
    assert!(report.doomed_by().is_none());
    assert!(!status.any_active());
    assert!(device.memory_usage().in_use < in_use, "and let go with the window");
    let lost = neighbour.read(&born).unwrap_err();
    assert!(matches!(lost, Error::NeverSealed { .. }), "{lost}");
    assert!(matches!(lost.root(), Error::Evicted { .. }), "{lost}");
    assert!(matches!(device.evict(window), Err(Error::NotOpen { .. })));
    assert!(all(&neighbour.read(&x).unwrap(), 1.0));
    assert_usable(&mut neighbour, &k);
}

/// The same for one that had only prepared.
#[test]
fn a_forgotten_prepared_stream_harms_nobody_until_it_is_evicted() {
    let Some((device, k)) = working(1) else { return };
    let status = device.captures();
    let mut prepared = device.stream().unwrap().prepare().unwrap();
    let mut x = filled(&mut prepared, 1.0);
    subject::forget(prepared);
    let mut neighbour = device.stream().unwrap();
    neighbour.launch(&k.inc, grid(), (&mut x, Len)).unwrap();
    assert!(all(&neighbour.read(&x).unwrap(), 2.0));
    assert_usable(&mut neighbour, &k);
    let [(window, WindowPhase::Prepared)] = status.windows()[..] else {
        panic!("its window is the only one")
    };
    device.evict(window).unwrap();
    assert!(!status.any_active());
    assert_usable(&mut neighbour, &k);
}
