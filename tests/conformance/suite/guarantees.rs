//! Guarantees at the seams between features: arenas and embedding, sealing and other threads, replays and retries.

use std::sync::mpsc;
use std::time::Duration;

use dacapo::Error;

use super::support::*;
use super::zoo::{self, Loaded};

/// Runs `test` on a thread of its own, so that a deadlock is a failure and not a test that never ends.
fn ends(test: impl FnOnce() + Send + 'static) {
    let (done, waited) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    match waited.recv_timeout(Duration::from_secs(300)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test does not end"),
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => thread.join().unwrap(),
    }
}

/// A graph that sets `out` to 1, through a temporary in its arena.
fn through_a_temporary(s: &mut Stream, set: &Loaded<zoo::Fill<u32>>, out: &mut Buffer<u32>) -> Graph {
    let recorded = s.record(|work| {
        let mut t = work.alloc::<u32>(64)?;
        work.launch(set, Grid::covering(64), (&mut t, 1u32, Len))?;
        work.copy(&t, &mut *out)
    });
    recorded.unwrap().0
}

/// Bytes of the child's arena that were the parent's too would be two allocations to the recorder: no edge between
/// their uses, and a race.
#[test]
fn a_graph_that_embeds_the_owner_of_the_arena_it_was_to_share_takes_its_own() {
    ends(|| {
        let Some(device) = device(2) else { return };
        let mut s = device.stream().unwrap();
        let set = zoo::fill().load(&device).unwrap();
        let mut out = s.alloc::<u32>(64).unwrap();
        let mut out2 = s.alloc::<u32>(64).unwrap();
        let mut child = through_a_temporary(&mut s, &set, &mut out);
        let (mut parent, ()) = s
            .record_with(CaptureOptions::new().share_arena(&child), |work| {
                let mut t = work.alloc::<u32>(64)?;
                work.launch(&set, Grid::covering(64), (&mut t, 9u32, Len))?;
                work.embed(&mut child)?;
                work.copy(&t, &mut out2)
            })
            .unwrap();
        for _ in 0..100 {
            parent.replay(&mut s).unwrap();
            child.replay(&mut s).unwrap();
        }
        assert_eq!(s.read(&out).unwrap(), [1; 64]);
        assert_eq!(s.read(&out2).unwrap(), [9; 64]);
        drop(parent);
        drop(child);
    });
}

/// The same through a grandchild: the arena comes along with whoever embeds it.
#[test]
fn the_owner_of_a_shared_arena_may_be_embedded_through_another_graph() {
    ends(|| {
        let Some(device) = device(2) else { return };
        let mut s = device.stream().unwrap();
        let set = zoo::fill().load(&device).unwrap();
        let mut out = s.alloc::<u32>(64).unwrap();
        let mut out2 = s.alloc::<u32>(64).unwrap();
        let mut child = through_a_temporary(&mut s, &set, &mut out);
        let (mut middle, ()) = s.record(|work| work.embed(&mut child)).unwrap();
        let (mut parent, ()) = s
            .record_with(CaptureOptions::new().share_arena(&child), |work| {
                let mut t = work.alloc::<u32>(64)?;
                work.launch(&set, Grid::covering(64), (&mut t, 9u32, Len))?;
                work.embed(&mut middle)?;
                work.copy(&t, &mut out2)
            })
            .unwrap();
        parent.replay(&mut s).unwrap();
        assert_eq!(s.read(&out2).unwrap(), [9; 64]);
    });
}

/// A buffer that got its bytes before the seal was certain could be used by another thread, and its bytes given to
/// somebody else under that use.
#[test]
fn a_seal_that_fails_gives_nobody_bytes_that_another_thread_can_still_use() {
    ends(|| {
        let Some(device) = open(DeviceOptions::new().memory_limit(8 << 20)) else { return };
        let (to_other, from_owner) = mpsc::channel::<Vec<Buffer<u8>>>();
        let mut other = device.stream().unwrap();
        let user = std::thread::spawn(move || {
            for mut buffers in from_owner {
                loop {
                    match other.fill(&mut buffers[0], 1u8) {
                        Ok(()) => panic!("a buffer of a recording that never sealed was used"),
                        Err(Error::StillRecording { .. }) => std::thread::yield_now(),
                        Err(Error::NeverSealed { .. }) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        });
        let mut s = device.stream().unwrap();
        for _ in 0..200 {
            let outcome = s.record(|work| {
                let buffers = (0..9).map(|_| work.alloc::<u8>(1 << 20)).collect::<Result<Vec<_>, _>>()?;
                to_other.send(buffers).unwrap();
                Ok(())
            });
            assert!(matches!(outcome, Err(Error::OutOfMemory { .. })), "{outcome:?}");
            let next = s.alloc::<u8>(1 << 20).unwrap();
            assert!(s.read(&next).unwrap().iter().all(|byte| *byte == 0));
        }
        drop(to_other);
        user.join().unwrap();
        device.check().unwrap();
    });
}

/// Options hold a graph too, whose dismantling must not happen where nothing may be waited for.
#[test]
fn options_that_hold_the_last_graph_may_be_dropped_inside_a_callback() {
    ends(|| {
        let Some(device) = device(2) else { return };
        let mut s = device.stream().unwrap();
        let before = device.memory_usage().in_use;
        let (graph, ()) = s
            .record(|work| {
                let mut t = work.alloc_scratch::<u32>(4)?;
                work.fill(&mut t, 1)
            })
            .unwrap();
        assert!(device.memory_usage().in_use > before);
        let mut options = Some(CaptureOptions::new().share_arena(&graph));
        drop(graph);
        s.host_call(move || drop(options.take())).unwrap();
        s.sync().unwrap();
        while device.memory_usage().in_use > before {
            std::thread::yield_now();
        }
    });
}

/// A use of nothing needs a place in the list all the same, since a kernel takes its arguments in order.
#[test]
fn a_child_whose_only_temporary_is_empty_can_be_embedded() {
    for order in [dacapo::Order::DataFlow, dacapo::Order::Sequential] {
        let Some(device) = device(2) else { return };
        let mut s = device.stream().unwrap();
        let count = zoo::count().load(&device).unwrap();
        let mut y = s.alloc::<u32>(1).unwrap();
        let (mut child, ()) = s
            .record_with(CaptureOptions::new().order(order), |work| {
                let empty = work.alloc_scratch::<f32>(0)?;
                work.launch(&count, Grid::covering(1), (&empty, &mut y, Len, Len))
            })
            .unwrap();
        let (mut only, ()) = s
            .record(|work| {
                let empty = work.alloc::<u32>(0)?;
                let mut none = work.alloc_scratch::<u32>(0)?;
                work.copy(&empty, &mut none)?;
                work.embed(&mut child)?;
                work.embed(&mut child)
            })
            .unwrap();
        assert_eq!(only.nodes(), 2);
        only.replay(&mut s).unwrap();
        drop(child);
        assert_eq!(s.read(&y).unwrap(), [1]);
        let nothing = zoo::nothing().load(&device).unwrap();
        let (mut child, ()) = s
            .record_with(CaptureOptions::new().order(order), |work| {
                let empty = work.alloc_scratch::<f32>(0)?;
                work.launch(&nothing, Grid::covering(1), (&empty, Len))
            })
            .unwrap();
        let (mut parent, ()) = s.record(|work| work.embed(&mut child)).unwrap();
        parent.replay(&mut s).unwrap().wait().unwrap();
    }
}
