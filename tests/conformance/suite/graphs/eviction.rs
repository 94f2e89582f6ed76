//! Eviction: any thread may close a window, and nothing else.

use std::sync::{Arc, Barrier};
use std::thread;

use dacapo::{Error, ErrorKind, Eviction, WindowId};

use super::support::*;

/// Evicts from a thread with a name.
fn evict(device: &Device, window: WindowId) -> Result<Eviction, Error> {
    let device = device.clone();
    let thread = thread::Builder::new().name("janitor".into());
    thread.spawn(move || device.evict(window)).unwrap().join().unwrap()
}

fn is_evicted(error: &Error, window: WindowId) -> bool {
    assert_eq!(error.kind(), ErrorKind::Evicted);
    matches!(error, Error::Evicted { window: found, by, .. } if *found == window && by.contains("janitor"))
}

/// A thread that never comes back must not pin buffers and block a `wait_idle` for ever.
#[test]
fn an_evicted_recording_yields_no_graph_and_lets_everything_go() {
    let Some((device, k)) = working(1) else { return };
    let mut other = device.stream().unwrap();
    let baseline = Baseline::take(&mut other);
    let mut x = other.alloc::<f32>(N).unwrap();
    let mut s = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let window = s.window().unwrap();
    let token = Arc::new(());
    let held = token.clone();
    s.launch(&k.inc, Grid::covering(N), (&mut x, Len)).unwrap();
    s.host_call(move || drop(held.clone())).unwrap();
    let born = s.alloc::<f32>(N).unwrap();

    let report = evict(&device, window).unwrap();
    assert_eq!((report.window(), report.window().stream()), (window, s.id()));
    assert!(report.by().contains("janitor"));
    assert!(report.doomed_by().is_none());
    assert_eq!(Arc::strong_count(&token), 1, "what the recording held is gone, although its owner is not");
    assert!(all(&other.read(&x).unwrap(), 0.0), "bytes from outside are what they were");
    let lost = other.read(&born).unwrap_err();
    assert!(matches!(&lost, Error::NeverSealed { cause } if is_evicted(cause, window)));

    let refused = s.launch(&k.inc, Grid::covering(N), (&mut x, Len)).unwrap_err();
    assert!(is_evicted(&refused, window), "the owner's next call says so");
    assert!(is_evicted(&s.alloc::<f32>(N).unwrap_err(), window), "and every later one");
    let (mut s, error) = s.end().unwrap_err().into_parts();
    assert!(is_evicted(&error, window));
    assert!(all(&s.read(&x).unwrap(), 0.0));
    drop((x, born));
    assert!(baseline.returns(&mut other));
}

/// Work of a warm-up that ran has run; the window is over all the same.
#[test]
fn an_evicted_warm_up_cannot_begin() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(N).unwrap();
    let mut s = s.prepare().unwrap();
    let window = s.window().unwrap();
    s.launch(&k.inc, Grid::covering(N), (&mut x, Len)).unwrap();
    evict(&device, window).unwrap();
    let refused = s.launch(&k.inc, Grid::covering(N), (&mut x, Len)).unwrap_err();
    assert!(is_evicted(&refused, window));
    assert!(is_evicted(&s.read(&x).unwrap_err(), window));
    assert!(is_evicted(&s.sync().unwrap_err(), window));
    let (mut s, error) = s.begin().unwrap_err().into_parts();
    assert!(is_evicted(&error, window));
    assert!(all(&s.read(&x).unwrap(), 1.0));
}

#[test]
fn an_owner_may_cancel_and_abort_what_was_evicted() {
    let Some((device, _)) = working(1) else { return };
    let prepared = device.stream().unwrap().prepare().unwrap();
    evict(&device, prepared.window().unwrap()).unwrap();
    let recording = prepared.cancel().prepare().unwrap().begin().unwrap();
    evict(&device, recording.window().unwrap()).unwrap();
    let mut s = recording.abort();
    s.sync().unwrap();
}

/// What went wrong first is what the owner must mend, whoever closed the window.
#[test]
fn the_report_of_an_eviction_names_what_had_doomed_the_recording() {
    let Some((device, _)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(N).unwrap();
    let mut s = s.prepare().unwrap().begin().unwrap();
    let window = s.window().unwrap();
    s.write(&mut x, &[0.0]).unwrap_err();
    let report = evict(&device, window).unwrap();
    assert!(matches!(report.doomed_by(), Some(Error::LengthMismatch { source_len: 1, target_len: N, .. })));
    let text = report.to_string();
    assert!(text.contains("janitor") && text.contains(&window.to_string()), "{text}");
    let error = s.end().unwrap_err().into_error();
    assert!(is_evicted(&error, window));
    assert!(
        matches!(&error, Error::Evicted { doomed_by: Some(cause), .. } if matches!(**cause, Error::LengthMismatch { .. }))
    );
}

/// A name that was kept too long must not hit somebody's new recording.
#[test]
fn an_eviction_never_hits_the_next_window_of_the_stream() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(N).unwrap();
    let s = s.prepare().unwrap().begin().unwrap();
    let first = s.window().unwrap();
    evict(&device, first).unwrap();
    let mut s = s.abort().prepare().unwrap().begin().unwrap();
    let second = s.window().unwrap();
    assert_ne!(first, second);
    assert!(matches!(evict(&device, first), Err(Error::NotOpen { window }) if window == first));
    s.launch(&k.inc, Grid::covering(N), (&mut x, Len)).unwrap();
    let (mut graph, mut s) = s.end().unwrap();
    assert!(matches!(evict(&device, second), Err(Error::NotOpen { window }) if window == second));
    graph.replay(&mut s).unwrap();
    assert!(all(&s.read(&x).unwrap(), 1.0));
}

#[test]
fn an_eviction_leaves_other_windows_alone() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(N).unwrap();
    let victim = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    let mut s = s.prepare().unwrap().begin().unwrap();
    s.launch(&k.inc, Grid::covering(N), (&mut x, Len)).unwrap();
    evict(&device, victim.window().unwrap()).unwrap();
    s.launch(&k.inc, Grid::covering(N), (&mut x, Len)).unwrap();
    let (mut graph, mut s) = s.end().unwrap();
    graph.replay(&mut s).unwrap();
    assert!(all(&s.read(&x).unwrap(), 2.0));
}

/// The closure forms have an owner's next call as well: the next operation, or the end.
#[test]
fn a_step_that_is_evicted_reports_the_eviction() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(N).unwrap();
    let newest = || device.captures().windows().last().unwrap().0;
    let mut window = None;
    let error = s
        .record(|work| {
            window = Some(newest());
            evict(&device, newest())?;
            work.launch(&k.inc, Grid::covering(N), (&mut x, Len))
        })
        .unwrap_err();
    assert!(is_evicted(&error, window.unwrap()));
    let error = s.record(|_| evict(&device, newest())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Evicted);
    let error = s.capture(|_| evict(&device, newest())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Evicted);
    let (mut graph, ()) = s.record(|work| work.launch(&k.inc, Grid::covering(N), (&mut x, Len))).unwrap();
    graph.replay(&mut s).unwrap();
    assert!(all(&s.read(&x).unwrap(), 1.0));
}

#[test]
fn any_stream_learns_of_its_eviction_and_goes_on() {
    let Some((device, _)) = working(1) else { return };
    let mut s = AnyStream::from(device.stream().unwrap());
    s.prepare().unwrap();
    s.begin().unwrap();
    let window = s.window().unwrap();
    evict(&device, window).unwrap();
    assert!(is_evicted(&s.alloc::<f32>(N).unwrap_err(), window));
    assert!(is_evicted(&s.end().unwrap_err(), window));
    s.prepare().unwrap();
    let window = s.window().unwrap();
    evict(&device, window).unwrap();
    assert!(is_evicted(&s.begin().unwrap_err(), window));
    s.prepare().unwrap();
    s.begin().unwrap();
    assert_eq!(s.end().unwrap().nodes(), 0);
}

/// Both sides claiming the recording would seal an empty graph, or leak a full one; both losing it would lose the
/// reason.
#[test]
fn a_window_that_is_ended_and_evicted_at_once_does_exactly_one_of_them() {
    const ROUNDS: usize = 3000;
    let Some((device, k)) = working(1) else { return };
    let mut s = Some(device.stream().unwrap());
    let mut x = s.as_mut().unwrap().alloc::<f32>(N).unwrap();
    let mut sealed = 0;
    for round in 0..ROUNDS {
        let mut recording = s.take().unwrap().prepare().unwrap().begin().unwrap();
        let window = recording.window().unwrap();
        recording.launch(&k.inc, Grid::covering(N), (&mut x, Len)).unwrap();
        let start = Barrier::new(2);
        let (ended, evicted) = thread::scope(|scope| {
            let evictor = scope.spawn(|| {
                start.wait();
                (0..round % 64).for_each(|_| std::hint::spin_loop());
                device.evict(window)
            });
            start.wait();
            (recording.end(), evictor.join().unwrap())
        });
        let stream = match (ended, evicted) {
            (Ok((mut graph, mut stream)), Err(Error::NotOpen { window: named })) => {
                assert_eq!((graph.nodes(), named), (1, window));
                graph.replay(&mut stream).unwrap();
                sealed += 1;
                stream
            }
            (Err(refused), Ok(report)) => {
                let (stream, error) = refused.into_parts();
                assert!(matches!(error, Error::Evicted { window: named, .. } if named == window), "{error}");
                assert_eq!(report.window(), window);
                stream
            }
            (ended, evicted) => panic!("{ended:?} and {evicted:?}"),
        };
        s = Some(stream);
    }
    assert!(all(&s.unwrap().read(&x).unwrap(), sealed as f32));
    assert!(!device.captures().any_active());
}

/// An owner who is evicted in the middle of a call must not have that call executed, as if nothing recorded.
#[test]
fn a_recording_that_is_evicted_amid_its_calls_executes_none_of_them() {
    const ROUNDS: usize = 2000;
    let Some((device, k)) = working(1) else { return };
    let mut s = Some(device.stream().unwrap());
    let mut x = s.as_mut().unwrap().alloc::<f32>(N).unwrap();
    for _ in 0..ROUNDS {
        let mut recording = s.take().unwrap().prepare().unwrap().begin().unwrap();
        let window = recording.window().unwrap();
        let start = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                device.evict(window).unwrap();
            });
            start.wait();
            let error = loop {
                if let Err(error) = recording.launch(&k.inc, Grid::covering(N), (&mut x, Len)) {
                    break error;
                }
            };
            assert!(matches!(error, Error::Evicted { window: named, .. } if named == window), "{error}");
        });
        s = Some(recording.abort());
    }
    assert!(all(&s.unwrap().read(&x).unwrap(), 0.0));
}
