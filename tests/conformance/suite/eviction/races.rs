//! Eviction against whatever the owner does at that moment, on real threads.

use std::sync::Barrier;
use std::thread;

use dacapo::{Error, Eviction, WindowId};

use super::is_eviction_of;
use super::support::*;

const ROUNDS: usize = 2000;

/// Runs `owner` beside an eviction of `window`, each a little earlier or later than the other from round to round.
fn race<T>(
    device: &Device,
    window: WindowId,
    round: usize,
    owner: impl FnOnce() -> T,
) -> (T, Result<Eviction, Error>) {
    let start = Barrier::new(2);
    let linger = |times: usize| (0..times).for_each(|_| std::hint::spin_loop());
    thread::scope(|scope| {
        let evictor = scope.spawn(|| {
            start.wait();
            linger((round % 8) * 40);
            device.evict(window)
        });
        start.wait();
        linger((round / 8 % 8) * 40);
        (owner(), evictor.join().unwrap())
    })
}

/// An owner who got a graph over memory that was let go, or neither a graph nor a reason.
#[test]
fn a_window_is_either_sealed_or_evicted() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let baseline = Baseline::take(&mut s);
    let mut x = s.alloc::<f32>(N).unwrap();
    let mut sealed = 0u16;
    for round in 0..ROUNDS {
        let mut recording = s.prepare().unwrap().begin().unwrap();
        let (id, window) = (recording.id(), recording.window().unwrap());
        recording.launch(&k.inc, Grid::covering(N), (&mut x, Len)).unwrap();
        let born = recording.alloc::<f32>(N).unwrap();
        let status = device.captures();
        let ((ended, still), evicted) = race(&device, window, round, || {
            let ended = recording.end();
            (ended, status.is_capturing(id))
        });
        assert!(!still, "once its `end` returned, the owner captures no more");
        s = match (ended, evicted) {
            (Ok((mut graph, mut stream)), Err(Error::NotOpen { window: named })) => {
                assert_eq!((graph.nodes(), named), (2, window));
                graph.replay(&mut stream).unwrap();
                assert!(all(&stream.read(&born).unwrap(), 0.0));
                sealed += 1;
                stream
            }
            (Err(refused), Ok(report)) => {
                let (mut stream, error) = refused.into_parts();
                assert!(is_eviction_of(&error, window), "{error}");
                assert_eq!(report.window(), window);
                let lost = stream.read(&born).unwrap_err();
                assert!(
                    matches!(&lost, Error::NeverSealed { cause } if is_eviction_of(cause, window)),
                    "{lost}"
                );
                stream
            }
            (ended, evicted) => panic!("{ended:?} and {evicted:?}"),
        };
    }
    assert!(all(&s.read(&x).unwrap(), f32::from(sealed)), "no graph ran that was not returned");
    drop(x);
    assert!(baseline.returns(&mut s));
}

/// An owner who learns of his eviction before the window is off the records opens a second one on one stream, and the
/// evictor's last step then ends that one.
#[test]
fn an_owner_goes_on_at_once_whoever_closed_the_window() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<f32>(N).unwrap();
    for round in 0..ROUNDS {
        let mut recording = s.prepare().unwrap().begin().unwrap();
        let (id, window) = (recording.id(), recording.window().unwrap());
        recording.launch(&k.inc, Grid::covering(N), (&mut x, Len)).unwrap();
        let status = device.captures();
        let ((next, left), _) = race(&device, window, round, || {
            let idle = recording.abort();
            let left = status.is_capturing(id);
            (idle.prepare().unwrap().begin().unwrap(), left)
        });
        assert!(!left, "an aborted recording is over, whoever ended it");
        let listed: Vec<_> = status.windows().into_iter().map(|(window, _)| window).collect();
        assert_eq!(listed, [next.window().unwrap()]);
        s = next.end().expect("the next window is not the evicted one").1;
    }
    assert!(all(&s.read(&x).unwrap(), 0.0));
}

/// A `begin` that went on after its window was evicted would record into one that nobody can close.
#[test]
fn a_warm_up_either_begins_or_is_evicted() {
    let Some((device, _)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    for round in 0..ROUNDS {
        let prepared = s.prepare().unwrap();
        let window = prepared.window().unwrap();
        let (begun, evicted) = race(&device, window, round, || prepared.begin());
        evicted.expect("a window is open until its owner ends it");
        s = match begun {
            Ok(recording) => {
                let (stream, error) = recording.end().unwrap_err().into_parts();
                assert!(is_eviction_of(&error, window), "{error}");
                stream
            }
            Err(refused) => {
                let (stream, error) = refused.into_parts();
                assert!(is_eviction_of(&error, window), "{error}");
                stream
            }
        };
        assert_eq!(device.captures().windows(), []);
    }
}

/// Both would discard the recording: one of them for the second time.
#[test]
fn a_stream_may_be_dropped_while_its_window_is_evicted() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let baseline = Baseline::take(&mut s);
    let mut x = s.alloc::<f32>(N).unwrap();
    for round in 0..ROUNDS / 4 {
        let mut recording = device.stream().unwrap().prepare().unwrap().begin().unwrap();
        let window = recording.window().unwrap();
        recording.launch(&k.inc, Grid::covering(N), (&mut x, Len)).unwrap();
        let born = recording.alloc::<f32>(N).unwrap();
        let (left, evicted) = race(&device, window, round, || {
            drop(recording);
            device.captures().any_active()
        });
        assert!(!left);
        assert!(matches!(evicted, Ok(_) | Err(Error::NotOpen { .. })));
        assert!(matches!(s.read(&born), Err(Error::NeverSealed { .. })));
    }
    assert!(all(&s.read(&x).unwrap(), 0.0));
    drop(x);
    assert!(baseline.returns(&mut s));
}

/// Two reports for one eviction would have two people look for the stuck thread.
#[test]
fn of_many_evictors_one_wins_and_the_owner_learns_its_name() {
    let Some((device, _)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    for _ in 0..200 {
        let recording = s.prepare().unwrap().begin().unwrap();
        let window = recording.window().unwrap();
        let start = Barrier::new(4);
        let evict = || {
            start.wait();
            device.evict(window)
        };
        let outcomes: Vec<_> = thread::scope(|scope| {
            let evictors: Vec<_> = (0..4).map(|_| scope.spawn(evict)).collect();
            evictors.into_iter().map(|evictor| evictor.join().unwrap()).collect()
        });
        let (won, late): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        assert_eq!((won.len(), late.len()), (1, 3));
        assert!(late.iter().all(|late| matches!(late, Err(Error::NotOpen { .. }))));
        let (stream, error) = recording.end().unwrap_err().into_parts();
        assert_eq!(error.to_string(), won[0].as_ref().unwrap().to_string());
        s = stream;
    }
}

/// A sweeper that evicts whatever it sees meets windows in every state, on every thread.
#[test]
fn owners_on_many_threads_survive_a_sweeper() {
    let Some((device, k)) = working(2) else { return };
    let stop = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    let (graphs, evicted) = thread::scope(|scope| {
        let sweeper = scope.spawn(|| {
            let mut won = 0usize;
            while !stop.load(relaxed) {
                for (window, _) in device.captures().windows() {
                    won += usize::from(device.evict(window).is_ok());
                }
                thread::yield_now();
            }
            won
        });
        let own = || {
            let mut s = device.stream().unwrap();
            let mut x = s.alloc::<f32>(N).unwrap();
            let (mut graphs, mut evicted) = (0u16, 0usize);
            for _ in 0..ROUNDS / 4 {
                match s.record(|work| work.launch(&k.inc, Grid::covering(N), (&mut x, Len))) {
                    Ok((mut graph, ())) => {
                        graph.replay(&mut s).unwrap();
                        graphs += 1;
                    }
                    Err(Error::Evicted { .. }) => evicted += 1,
                    Err(other) => panic!("{other}"),
                }
            }
            assert!(all(&s.read(&x).unwrap(), f32::from(graphs)));
            (usize::from(graphs), evicted)
        };
        let owners: Vec<_> = (0..3).map(|_| scope.spawn(own)).collect();
        let counts: Vec<_> = owners.into_iter().map(|owner| owner.join()).collect();
        stop.store(true, relaxed);
        let won = sweeper.join().unwrap();
        let counts: Vec<(usize, usize)> = counts.into_iter().map(|count| count.unwrap()).collect();
        let (graphs, evicted): (usize, usize) =
            counts.iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
        assert_eq!(won, evicted, "each eviction has one owner who learns of it");
        (graphs, evicted)
    });
    assert_eq!(graphs + evicted, 3 * (ROUNDS / 4));
    assert!(!device.captures().any_active());
}
