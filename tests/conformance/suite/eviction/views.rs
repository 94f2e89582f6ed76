//! The status record as other threads and neighbours see it, through every way into a window and out of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use dacapo::WindowPhase;

use super::evict;
use super::support::*;
use super::watcher::{Watcher, view};

/// An autotuner on its own thread that sees a transition late decides differently in the warm-up and in the recording.
#[test]
fn another_thread_sees_every_transition_that_it_has_heard_of() {
    let Some((device, _)) = working(1) else { return };
    let watcher = Watcher::start(device.captures());
    let s = device.stream().unwrap();
    let id = s.id();
    assert_eq!(watcher.sees(id), None);
    let s = s.prepare().unwrap();
    assert_eq!(watcher.sees(id), Some(WindowPhase::Prepared));
    let s = s.cancel();
    assert_eq!(watcher.sees(id), None);
    let s = s.prepare().unwrap().begin().unwrap();
    assert_eq!(watcher.sees(id), Some(WindowPhase::Recording));
    let s = s.abort();
    assert_eq!(watcher.sees(id), None);
    let (_graph, s) = s.prepare().unwrap().begin().unwrap().end().unwrap();
    assert_eq!(watcher.sees(id), None);
    let s = s.prepare().unwrap();
    evict(&device, s.window().unwrap()).unwrap();
    assert_eq!(watcher.sees(id), None, "evicted, although its owner still calls it prepared");
    let s = s.cancel().prepare().unwrap().begin().unwrap();
    evict(&device, s.window().unwrap()).unwrap();
    assert_eq!(watcher.sees(id), None);
    drop(s.abort().prepare().unwrap());
    assert_eq!(watcher.sees(id), None);
}

/// The unwinding of an owner's thread is the last that anybody hears of its windows.
#[test]
fn a_panic_on_the_owner_s_thread_closes_its_windows() {
    let Some((device, _)) = working(1) else { return };
    let owner = device.clone();
    let panicked = thread::spawn(move || {
        let _prepared = owner.stream().unwrap().prepare().unwrap();
        let _recording = owner.stream().unwrap().prepare().unwrap().begin().unwrap();
        assert_eq!(view(&owner.captures()).len(), 2);
        std::panic::resume_unwind(Box::new("the owner's own"));
    })
    .join();
    assert!(panicked.is_err());
    assert_eq!(view(&device.captures()), []);
    let mut s = device.stream().unwrap();
    let step = |_: &mut Work<'_>| -> dacapo::Result<()> { std::panic::resume_unwind(Box::new(())) };
    assert!(catch_unwind(AssertUnwindSafe(|| s.record(step).map(drop))).is_err());
    assert_eq!(view(&device.captures()), []);
    assert!(s.record(|_| Ok(())).is_ok());
}

/// Nobody can close a forgotten window but an evictor; until then it is listed, and may cost its neighbours nothing.
#[test]
fn forgotten_windows_are_listed_and_cost_their_neighbours_on_the_slot_nothing() {
    let Some((device, k)) = working(1) else { return };
    let mut x = device.stream().unwrap().alloc::<f32>(N).unwrap();
    let prepared = device.stream().unwrap().prepare().unwrap();
    let mut recording = device.stream().unwrap().prepare().unwrap().begin().unwrap();
    recording.launch(&k.inc, Grid::covering(N), (&mut x, Len)).unwrap();
    let forgotten = [prepared.window().unwrap(), recording.window().unwrap()];
    subject::forget((prepared, recording));
    let status = device.captures();
    let both = [(forgotten[0], WindowPhase::Prepared), (forgotten[1], WindowPhase::Recording)];
    assert_eq!(view(&status), both);

    let mut s = device.stream().unwrap();
    assert!(!status.is_capturing(s.id()), "a neighbour does not capture");
    s.launch(&k.inc, Grid::covering(N), (&mut x, Len)).unwrap();
    let (mut graph, ()) = s.capture(|work| work.launch(&k.inc, Grid::covering(N), (&mut x, Len))).unwrap();
    graph.replay(&mut s).unwrap();
    s.sync().unwrap();
    s.memory_cleanup().unwrap();
    assert!(all(&s.read(&x).unwrap(), 3.0), "eager, warm-up, replay, and nothing that was only recorded");
    assert_eq!(view(&status), both);

    for (index, window) in forgotten.into_iter().enumerate() {
        assert_eq!(evict(&device, window).unwrap().window(), window);
        assert_eq!(view(&status), both[index + 1..]);
    }
}

/// Slots are the backend's: two streams that fold onto one are still two.
#[test]
fn neighbours_on_one_slot_are_told_apart() {
    let Some((device, _)) = working(1) else { return };
    let status = device.captures();
    let [a, b, c] = [(); 3].map(|()| device.stream().unwrap());
    let (a, b) = (a.prepare().unwrap(), b.prepare().unwrap().begin().unwrap());
    let ids = [a.id(), b.id(), c.id()];
    let capturing = || ids.map(|id| status.is_capturing(id));
    assert_eq!(capturing(), [true, true, false]);
    evict(&device, a.window().unwrap()).unwrap();
    assert_eq!(capturing(), [false, true, false]);
    let c = c.prepare().unwrap();
    assert_eq!(capturing(), [false, true, true]);
    assert_eq!(view(&status).len(), 2);
    drop(b);
    assert_eq!(capturing(), [false, false, true]);
    let a = a.cancel().prepare().unwrap();
    assert_eq!(capturing(), [true, false, true]);
    assert_eq!(view(&status)[0].0, c.window().unwrap(), "oldest first");
    drop((a, c));
    assert_eq!(view(&status), []);
}

/// A view may be kept for longer than what it shows, and by somebody who has no device.
#[test]
fn a_status_outlives_its_device() {
    let Some((device, k)) = working(1) else { return };
    let (status, window) = {
        let open = device.stream().unwrap().prepare().unwrap();
        (device.captures(), open.window().unwrap())
    };
    drop((device, k));
    assert_eq!(view(&status), []);
    assert!(!status.is_capturing(window.stream()));
    assert!(status.wait_idle(std::time::Duration::ZERO));
}
