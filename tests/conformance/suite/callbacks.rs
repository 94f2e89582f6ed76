//! Host callbacks: when they run, what orders them, and what a failure in one comes to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use dacapo::{Error, NodeInfo};

use super::support::*;

/// A callback that counts its calls in `count`.
fn counting(count: &Arc<AtomicUsize>) -> impl FnMut() + Send + 'static {
    let count = count.clone();
    move || {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn of(count: &AtomicUsize) -> usize {
    count.load(Ordering::Relaxed)
}

/// A callback that ran at its call would see buffers that the work before it has not written yet.
#[test]
fn a_callback_runs_in_its_turn_in_every_phase_and_is_recorded_while_recording() {
    let Some((device, _k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let gate = Gate::close(&mut s);
    s.host_call(counting(&count)).unwrap();
    assert!(is_held_up(&mut s));
    assert_eq!(of(&count), 0, "not before what was asked for before it");
    gate.open();
    s.sync().unwrap();
    assert_eq!(of(&count), 1);

    let mut s = s.prepare().unwrap();
    s.host_call(counting(&count)).unwrap();
    s.sync().unwrap();
    assert_eq!(of(&count), 2, "a warm-up executes");
    let mut s = s.begin().unwrap();
    s.host_call(counting(&count)).unwrap();
    let (mut graph, mut s) = s.end().unwrap();
    s.sync().unwrap();
    assert_eq!(of(&count), 2, "a recording executes nothing");
    for replays in 1..=3 {
        graph.replay(&mut s).unwrap().wait().unwrap();
        assert_eq!(of(&count), 2 + replays);
    }
}

/// cuda-core: a callback that is consumed by its first call is freed again by every replay (E03).
#[test]
fn a_graph_owns_its_callbacks_and_calls_each_once_a_replay_until_it_is_gone() {
    let Some((device, _k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let (mut graph, ()) = s
        .record(|w| {
            w.host_call(counting(&count))?;
            w.host_call(counting(&count))
        })
        .unwrap();
    assert_eq!(Arc::strong_count(&count), 3);
    let gate = Gate::close(&mut s);
    graph.replay(&mut s).unwrap();
    graph.replay(&mut s).unwrap();
    assert_eq!(of(&count), 0);
    drop(graph);
    assert_eq!(Arc::strong_count(&count), 3, "two replays in flight need them");
    gate.open();
    s.sync().unwrap();
    assert_eq!(of(&count), 4);
    assert!(eventually(|| Arc::strong_count(&count) == 1), "nobody does any more");

    let (graph, ()) = s.record(|w| w.host_call(counting(&count))).unwrap();
    drop(graph);
    let _ = s.record(|w| w.host_call(counting(&count)).and(Err::<(), _>(Error::NotReplayed))).unwrap_err();
    assert!(eventually(|| Arc::strong_count(&count) == 1), "let go");
    assert_eq!(of(&count), 4, "and never called");
}

/// An embedded child shares its callbacks with its parent: both call them, one at a time.
#[test]
fn a_parent_calls_the_callbacks_of_an_embedded_graph_also_when_the_child_is_gone() {
    let Some((device, _k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let (mut child, ()) = s.record(|w| w.host_call(counting(&count))).unwrap();
    let (mut parent, ()) = s
        .record(|w| {
            w.embed(&mut child)?;
            w.embed(&mut child)
        })
        .unwrap();
    child.replay(&mut s).unwrap();
    parent.replay(&mut s).unwrap().wait().unwrap();
    assert_eq!(of(&count), 3);
    drop(child);
    parent.replay(&mut s).unwrap().wait().unwrap();
    assert_eq!(of(&count), 5);
}

fn node(graph: &Graph, index: usize) -> NodeInfo {
    graph.node(index).unwrap()
}

/// A callback whose effects nobody can see must not be overtaken, or be held to an order that it did not ask for.
#[test]
fn in_a_graph_a_callback_is_a_barrier_unless_it_names_what_it_uses() {
    let Some((device, _k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let (mut x, mut y) = (s.alloc::<f32>(LEN).unwrap(), s.alloc::<f32>(LEN).unwrap());
    let (barrier, ()) = s
        .record(|w| {
            w.fill(&mut x, 1.0)?;
            w.fill(&mut y, 1.0)?;
            w.host_call(|| {})?;
            w.fill(&mut x, 2.0)?;
            w.fill(&mut y, 2.0)
        })
        .unwrap();
    assert_eq!(node(&barrier, 2).name, "host call");
    assert_eq!(node(&barrier, 2).after, [0, 1], "after all that is before it");
    assert_eq!((node(&barrier, 3).after, node(&barrier, 4).after), (vec![2], vec![2]));

    let (named, ()) = s
        .record(|w| {
            w.fill(&mut x, 1.0)?;
            w.fill(&mut y, 1.0)?;
            w.host_call_with(Touches::new().reads(&x), || {})?;
            w.fill(&mut x, 2.0)?;
            w.fill(&mut y, 2.0)
        })
        .unwrap();
    assert_eq!(node(&named, 2).after, [0], "after what it reads");
    assert_eq!((node(&named, 3).after, node(&named, 4).after), (vec![2], vec![1]));
}

/// A callback on one stream must see what another one wrote, if it says that it reads it.
#[test]
fn a_callback_that_names_a_buffer_is_ordered_across_streams() {
    let Some((device, _k)) = working(2) else { return };
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = a.alloc::<f32>(LEN).unwrap();
    a.sync().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let gate = Gate::close(&mut a);
    a.fill(&mut x, 1.0).unwrap();
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let mut called = counting(&count);
    let callback = move || {
        called();
        let _ = wait.recv();
    };
    b.host_call_with(Touches::new().reads(&x), callback).unwrap();
    a.fill(&mut x, 2.0).unwrap();
    assert!(is_held_up(&mut b));
    assert_eq!(of(&count), 0, "it waits for the first fill");
    gate.open();
    assert!(eventually(|| of(&count) == 1));
    assert!(is_held_up(&mut a), "the second fill waits for it");
    drop(go_on);
    assert!(all(&a.read(&x).unwrap(), 2.0));
}

/// A panic across the driver's boundary aborts the process, and one that is merely swallowed leaves stale bytes that
/// look valid.
#[test]
fn a_panic_in_a_callback_taints_what_it_was_to_write_and_nothing_else() {
    let Some((device, k)) = working(2) else { return };
    let mut s = device.stream().unwrap();
    let (mut x, mut y) = (filled(&mut s, 1.0), filled(&mut s, 2.0));
    let mut z = s.alloc::<f32>(LEN).unwrap();
    s.host_call(|| panic!("plain")).unwrap();
    let panicked = |error: Error, what: &str| {
        let Error::CallbackPanicked { message } = error.root() else { panic!("{error}") };
        assert_eq!(&**message, what);
    };
    panicked(s.sync().unwrap_err(), "plain");

    let named = Touches::new().reads(&x).writes(y.slice_mut(..LEN / 2).unwrap());
    s.host_call_with(named, || std::panic::panic_any(7u8)).unwrap();
    let error = s.read(&y).unwrap_err();
    assert!(matches!(error, Error::Tainted { .. }), "{error}");
    panicked(error, "a panic without a message");
    assert!(all(&s.read(y.slice(LEN / 2..).unwrap()).unwrap(), 2.0), "the other half was not its");
    assert!(all(&s.read(&x).unwrap(), 1.0), "nor what it only reads");

    s.launch(&k.add1, grid(), (&y, &mut z, Len, Len)).unwrap();
    panicked(s.read(&z).unwrap_err(), "a panic without a message");
    let never = Arc::new(AtomicUsize::new(0));
    s.host_call_with(Touches::new().reads(&z).writes(&mut x), counting(&never)).unwrap();
    panicked(s.read(&x).unwrap_err(), "a panic without a message");
    assert_eq!(of(&never), 0, "it is not called on bytes that nobody wrote");
    panicked(s.sync().unwrap_err(), "a panic without a message");

    s.fill(&mut y, 3.0).unwrap();
    s.launch(&k.add1, grid(), (&y, &mut z, Len, Len)).unwrap();
    assert!(all(&s.read(&z).unwrap(), 4.0), "a full write heals, and the device goes on");
    device.check().unwrap();
}

/// A replay whose callback panicked once must not be marked for ever, nor pass for one that worked.
#[test]
fn a_panic_in_a_graphs_callback_fails_that_replay_and_the_next_one_heals_what_it_writes_first() {
    let Some((device, k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let (mut x, mut y) = (s.alloc::<f32>(LEN).unwrap(), s.alloc::<f32>(LEN).unwrap());
    let mut calls = 0;
    let (mut graph, ()) = s
        .record(|w| {
            w.fill(&mut x, 1.0)?;
            w.host_call_with(Touches::new().writes(&mut x), move || {
                calls += 1;
                assert!(calls != 2, "the second call");
            })?;
            w.launch(&k.add1, grid(), (&x, &mut y, Len, Len))
        })
        .unwrap();
    graph.replay(&mut s).unwrap().wait().unwrap();
    assert!(all(&s.read(&y).unwrap(), 2.0));
    let ticket = graph.replay(&mut s).unwrap();
    assert!(matches!(ticket.wait(), Err(Error::CallbackPanicked { .. })));
    let error = s.read(&y).unwrap_err();
    assert!(matches!(error.root(), Error::CallbackPanicked { .. }), "{error}");
    assert!(matches!(s.sync(), Err(Error::CallbackPanicked { .. })), "its stream hears of it once");
    graph.replay(&mut s).unwrap().wait().unwrap();
    assert!(all(&s.read(&y).unwrap(), 2.0));
    s.sync().unwrap();
}

/// What is submitted just when the last callback ends that could have failed it must not be kept for the next one to come.
#[test]
fn a_graph_that_is_replayed_as_callbacks_end_is_let_go() {
    let Some((device, _k)) = working(2) else { return };
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = a.alloc::<f32>(N).unwrap();
    let token = Arc::new(());
    let held = token.clone();
    let (mut graph, ()) = b.record(|w| w.host_call(move || drop(held.clone()))).unwrap();
    for _ in 0..500 {
        a.host_call_with(Touches::new().writes(&mut x), || {}).unwrap();
        graph.replay(&mut b).unwrap();
        graph.replay(&mut b).unwrap();
    }
    drop(graph);
    a.sync().unwrap();
    b.sync().unwrap();
    assert_let_go(&token);
}

/// Something that panics when it is dropped.
struct Bomb;

impl Bomb {
    /// A callback that owns one.
    fn callback() -> impl FnMut() + Send + 'static {
        let bomb = Bomb;
        move || assert_eq!(size_of_val(&bomb), 0)
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("a value that panics when it is dropped");
        }
    }
}

/// A panic in what a callback owns would end the worker, and every later wait would wait for ever.
#[test]
fn a_callback_whose_values_panic_when_they_are_dropped_does_not_end_the_worker() {
    let Some((device, _k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    s.host_call(Bomb::callback()).unwrap();
    let mut bomb = Some(Bomb);
    s.host_call(move || drop(bomb.take())).unwrap();
    s.host_call(|| std::panic::panic_any(Bomb)).unwrap();
    let (mut graph, ()) = s.record(|w| w.host_call(Bomb::callback())).unwrap();
    let gate = Gate::close(&mut s);
    graph.replay(&mut s).unwrap();
    drop(graph);
    gate.open();
    let buffer = filled(&mut s, 1.0);
    let last = s.read_async(&buffer).unwrap();
    assert!(all(&block_on(last).unwrap(), 1.0), "the worker goes on");
    device.check().unwrap();
}

/// A waker is user code on the device's thread, as a callback is: it may neither call us nor take the device down.
#[test]
fn a_waker_that_panics_does_not_end_the_worker_and_loses_no_bytes() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics");
        }
    }
    let Some((device, _k)) = working(1) else { return };
    let mut s = device.stream().unwrap();
    let buffer = filled(&mut s, 1.0);
    let gate = Gate::close(&mut s);
    let mut future = s.read_async(&buffer).unwrap();
    let waker = Waker::from(Arc::new(Panics));
    assert!(std::pin::Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
    gate.open();
    s.sync().unwrap();
    assert!(all(&poll(&mut future).unwrap().unwrap(), 1.0));
    assert!(all(&s.read(&buffer).unwrap(), 1.0));
    device.check().unwrap();
}
