//! E01 to E08: what is undefined behaviour from safe code elsewhere. E04 is a matter of sealed traits alone, hence a
//! ui-test; so are the halves of E05, E06 and E08 that do not compile.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dacapo::Error;

use super::support::*;

fn grid() -> Grid {
    Grid::covering(N)
}

/// A graph that keeps nothing alive writes through the address of a slice that is gone.
#[test]
fn e01_a_graph_keeps_alive_what_it_fills() {
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
    let mut b = s.alloc::<u32>(N).unwrap();
    let before = device.memory_usage();
    let (mut graph, ()) = s.record(|w| w.fill(&mut b, 0xDEAD)).unwrap();
    drop(b);
    let canaries = Sentinels::of(&mut s, 16, N, 77u32);
    for _ in 0..3 {
        graph.replay(&mut s).unwrap();
    }
    assert!(canaries.are_intact(&mut s));
    let pinned = device.memory_usage().in_use;
    drop(canaries);
    drop(graph);
    s.sync().unwrap();
    assert!(
        device.memory_usage().in_use < before.in_use && pinned > before.in_use,
        "and lets go of it in the end"
    );
}

/// A recorded upload that keeps the host's pointer reads memory that was freed, or changed.
#[test]
fn e02_a_recorded_write_owns_its_bytes() {
    let Some(device) = device(1) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut s = device.stream().unwrap();
    let (mut x, mut y) = (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(N).unwrap());
    let mut graph = {
        let mut data = vec![5u32; N];
        let mut recording = s.prepare().unwrap().begin().unwrap();
        recording.write(&mut x, &data).unwrap();
        data.fill(9999);
        recording.launch(&k.add1, grid(), (&x, &mut y, Len, Len)).unwrap();
        let (graph, idle) = recording.end().unwrap();
        s = idle;
        graph
    };
    let _reused: Vec<Vec<u32>> = (0..64).map(|round| vec![round; N]).collect();
    for other in 0..3 {
        s.fill(&mut x, other).unwrap();
        graph.replay(&mut s).unwrap();
        assert_eq!(s.read(&y).unwrap(), [6; N]);
    }
}

/// A callback that is freed by its first call is called again by the second replay.
#[test]
fn e03_a_recorded_callback_is_called_once_a_replay_and_dropped_once() {
    let Some(device) = device(1) else { return };
    let (token, calls) = (Arc::new(()), Arc::new(AtomicUsize::new(0)));
    let mut s = device.stream().unwrap();
    let (counted, owned) = (calls.clone(), token.clone());
    let mut own_state = 0;
    let (mut graph, ()) = s
        .record(|w| {
            w.host_call(move || {
                own_state += Arc::strong_count(&owned).min(1);
                counted.store(own_state, Ordering::Relaxed);
            })
        })
        .unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 0, "recording does not call it");
    for replay in 1..=5 {
        graph.replay(&mut s).unwrap().wait().unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), replay);
    }
    assert_eq!(Arc::strong_count(&token), 2);
    drop(graph);
    assert_let_go(&token);
}

/// A panic that leaves a callback crosses into the driver's thread: here it is an error, and the next replay is good.
#[test]
fn e03_a_panic_in_a_recorded_callback_is_caught_on_every_replay() {
    let Some(device) = device(1) else { return };
    let mut s = device.stream().unwrap();
    let mut y = s.alloc::<u32>(N).unwrap();
    let mut calls = 0;
    let (mut graph, ()) = s
        .record(|w| {
            w.fill(&mut y, 1)?;
            w.host_call_with(Touches::new().writes(&mut y), move || {
                calls += 1;
                assert!(calls % 2 == 0, "call {calls}");
            })
        })
        .unwrap();
    for replay in 1..=4 {
        let ticket = graph.replay(&mut s).unwrap();
        if replay % 2 == 0 {
            ticket.wait().unwrap();
            s.sync().unwrap();
            assert_eq!(s.read(&y).unwrap(), [1; N]);
            continue;
        }
        let error = refused(ticket.wait());
        assert!(
            matches!(&error, Error::CallbackPanicked { message } if **message == *format!("call {replay}"))
        );
        assert_eq!(refused(s.sync()).to_string(), error.to_string());
        assert_tainted(&mut s, &y, &error);
    }
}

/// The closure owns its resources, and may do with them what it likes.
#[test]
fn e05_a_step_may_replace_and_drop_a_buffer_that_it_recorded() {
    let Some(device) = device(1) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut s = device.stream().unwrap();
    let (mut x, mut y) = (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(N).unwrap());
    s.fill(&mut x, 1).unwrap();
    let (mut graph, swapped) = s
        .record(|w| {
            w.launch(&k.inc, grid(), (&mut x, Len))?;
            let born = w.alloc::<u32>(N)?;
            drop(std::mem::replace(&mut x, born));
            w.launch(&k.add1, grid(), (&x, &mut y, Len, Len))?;
            Ok(x)
        })
        .unwrap();
    let canaries = Sentinels::of(&mut s, 16, N, 77u32);
    graph.replay(&mut s).unwrap();
    assert_eq!(s.read(&y).unwrap(), [1; N], "from the buffer that was put in its place, which reads as zero");
    assert_eq!(s.read(&swapped).unwrap(), [0; N]);
    assert!(canaries.are_intact(&mut s));
}

/// `&mut` is exclusive on one thread's word; the device's streams must keep it too, halves included.
#[test]
fn e06_exclusive_uses_on_several_streams_run_one_after_the_other_and_halves_side_by_side() {
    let Some(device) = device(3) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut streams: Vec<Stream> = (0..3).map(|_| device.stream().unwrap()).collect();
    let mut b = streams[0].alloc::<u32>(N).unwrap();
    streams[0].sync().unwrap();
    let gate = Gate::close(&mut streams[0]);
    for s in &mut streams {
        s.launch(&k.inc, grid(), (&mut b, Len)).unwrap();
    }
    assert!(is_held_up(&mut streams[1]) && is_held_up(&mut streams[2]), "each waits for the one before it");
    gate.open();
    assert_eq!(streams[2].read(&b).unwrap(), [3; N]);
    let mut tail = b.split_off(N / 2).unwrap();
    let gate = Gate::close(&mut streams[0]);
    streams[0].launch(&k.inc, Grid::covering(N / 2), (&mut b, Len)).unwrap();
    streams[1].launch(&k.inc, Grid::covering(N / 2), (&mut tail, Len)).unwrap();
    assert_eq!(streams[2].read(&tail).unwrap(), [4; N / 2], "halves wait for nothing of each other");
    gate.open();
    assert_eq!(streams[2].read(&b).unwrap(), [4; N / 2]);
}

/// A call that clears what a graph retains is a free under a live graph: here there is none that could.
#[test]
fn e07_no_safe_call_frees_what_a_live_graph_uses() {
    let Some(device) = device(2) else { return };
    let k = Kernels::<u32>::load(&device);
    let (mut s, mut other) = (device.stream().unwrap(), device.stream().unwrap());
    let (mut x, mut y) = (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(N).unwrap());
    s.fill(&mut x, 4).unwrap();
    let (mut graph, born) = s
        .record(|w| {
            let (mut t, mut born) = (w.alloc::<u32>(N)?, w.alloc::<u32>(N)?);
            w.launch(&k.add1, grid(), (&x, &mut t, Len, Len))?;
            w.launch(&k.mul2, grid(), (&t, &mut born, Len, Len))?;
            w.copy(&born, &mut y)?;
            Ok(born)
        })
        .unwrap();
    drop((x, born));
    for round in 0..10 {
        drop(Sentinels::of(&mut other, 16, N << round, 77u32));
        s.memory_cleanup().unwrap();
        other.memory_cleanup().unwrap();
        let window = other.id();
        let abandoned = device.stream().unwrap().prepare().unwrap().begin().unwrap();
        device.evict(abandoned.window().unwrap()).unwrap();
        assert!(!device.captures().is_capturing(window));
        let canaries = Sentinels::of(&mut other, 16, N, 78u32);
        graph.replay(&mut s).unwrap();
        assert_eq!(other.read(&y).unwrap(), [10; N]);
        assert!(canaries.are_intact(&mut other));
    }
}

/// A graph's own copies and its launches, eager writes and replays on other streams: one order, that of the calls.
#[test]
fn e08_recorded_copies_are_ordered_with_replays_and_eager_work_on_every_stream() {
    let Some(device) = device(2) else { return };
    let k = Kernels::<u32>::load(&device);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let (mut x, mut y, mut z) =
        (a.alloc::<u32>(N).unwrap(), a.alloc::<u32>(N).unwrap(), a.alloc::<u32>(N).unwrap());
    let (mut graph, ()) = a
        .record(|w| {
            w.launch(&k.add1, grid(), (&x, &mut y, Len, Len))?;
            w.copy(&y, &mut z)?;
            w.write(&mut x, &[100; N])
        })
        .unwrap();
    a.sync().unwrap();
    // Without the waits, what follows on B would run before what comes first on A.
    let gate = Gate::close(&mut a);
    a.fill(&mut x, 1).unwrap();
    graph.replay(&mut b).unwrap();
    let first = a.read_async(&z).unwrap();
    b.fill(&mut x, 5).unwrap();
    graph.replay(&mut a).unwrap();
    let second = b.read_async(&z).unwrap();
    graph.replay(&mut b).unwrap();
    let third = a.read_async(&z).unwrap();
    gate.open();
    for (future, expected) in [(first, 2), (second, 6), (third, 101)] {
        assert_eq!(block_on(future).unwrap(), [expected; N]);
    }
}

/// Unwinding out of a step drops what it holds while the window is open; the graph of before must not notice.
#[test]
fn e05_a_step_that_panics_with_a_captured_buffer_in_hand_frees_nothing_that_a_graph_uses() {
    let Some(device) = device(1) else { return };
    let k = Kernels::<u32>::load(&device);
    let mut s = device.stream().unwrap();
    let (mut x, mut y) = (s.alloc::<u32>(N).unwrap(), s.alloc::<u32>(N).unwrap());
    s.fill(&mut x, 1).unwrap();
    let (mut graph, ()) = s.record(|w| w.launch(&k.add1, grid(), (&x, &mut y, Len, Len))).unwrap();
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        s.record(|w| {
            let mut held = x;
            w.launch(&k.inc, grid(), (&mut held, Len))?;
            assert!(held.is_empty(), "unwinding drops the captured buffer");
            Ok(())
        })
    }));
    assert!(unwound.is_err());
    let canaries = Sentinels::of(&mut s, 16, N, 77u32);
    graph.replay(&mut s).unwrap();
    assert_eq!(s.read(&y).unwrap(), [2; N]);
    assert!(canaries.are_intact(&mut s));
}
