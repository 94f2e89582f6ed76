//! What stays where it is: what a graph, an open window or a raw address counts on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::sparse::{PAGE, PAGE_BYTES, sparse, verify};
use super::subject::calls_of;
use super::support::*;
use dacapo::{AllocationMode, Call, Error};

/// So many buffers of a page that a capture finds it well used, and moves none of them by itself.
const USED: usize = 10;

/// A graph has resolved its addresses.
#[test]
fn what_a_graph_uses_stays_and_the_rest_of_its_page_is_used() {
    let Some((device, k)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let mut buffers = sparse(&mut stream, 2, USED);
    let (mut graph, ()) = stream
        .record(|work| buffers.iter_mut().try_for_each(|(_, x)| work.launch(&k.inc, grid(), (x, Len))))
        .unwrap();
    assert_eq!(stream.compact().unwrap().buffers, 0);
    for (value, _) in &mut buffers {
        *value += 1.0;
    }
    graph.replay(&mut stream).unwrap();
    verify(&mut stream, &buffers);
    // Both pages have room for others.
    let others: Vec<_> = (0..2 * (PAGE - USED)).map(|i| (i as f32, filled(&mut stream, i as f32))).collect();
    assert_eq!(device.memory_usage().held, 2 * PAGE_BYTES);
    drop(others);
    drop(graph);
    assert_eq!(stream.compact().unwrap().buffers, USED, "once the graph is gone, they move");
    verify(&mut stream, &buffers);
}

/// Others move onto the page of what cannot move, and not the other way round.
#[test]
fn what_may_move_goes_to_the_page_of_what_may_not() {
    let Some((device, k)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let mut buffers = sparse(&mut stream, 3, USED);
    let pinned = &mut buffers[USED + 2].1;
    let (_graph, ()) = stream.record(|work| work.launch(&k.inc, grid(), (pinned, Len))).unwrap();
    assert_eq!(stream.compact().unwrap().pages, 2);
    stream.sync().unwrap();
    assert!(eventually(|| device.memory_usage().held == PAGE_BYTES));
    verify(&mut stream, &buffers);
}

/// A recording resolves its addresses at its end, and a graph would keep one that is out of date.
#[test]
fn what_an_open_window_recorded_stays_until_the_window_is_over() {
    let Some((device, k)) = working(2) else { return };
    let [stream, mut other] = [0; 2].map(|_| device.stream().unwrap());
    let mut buffers = sparse(&mut other, 2, USED);
    let mut recording = stream.prepare().unwrap().begin().unwrap();
    for (value, buffer) in &mut buffers {
        recording.launch(&k.inc, grid(), (&mut *buffer, Len)).unwrap();
        *value += 1.0;
    }
    assert_eq!(other.compact().unwrap().buffers, 0);
    let (mut graph, stream) = recording.end().unwrap();
    graph.replay(&mut other).unwrap();
    verify(&mut other, &buffers);
    drop(graph);
    // However it is over.
    for how in 0..3 {
        let other_stream = device.stream().unwrap();
        let mut recording = other_stream.prepare().unwrap().begin().unwrap();
        buffers.iter_mut().for_each(|(_, x)| recording.launch(&k.inc, grid(), (x, Len)).unwrap());
        assert_eq!(other.compact().unwrap().buffers, 0);
        match how {
            0 => drop(recording.abort()),
            1 => drop(recording),
            _ => {
                device.evict(recording.window().unwrap()).unwrap();
            }
        }
        assert_eq!(other.compact().unwrap().buffers, USED, "{how}");
        verify(&mut other, &buffers);
        buffers = sparse(&mut other, 2, USED);
    }
    drop(stream);
}

/// An address that somebody else has written down.
#[test]
fn a_raw_address_holds_for_as_long_as_its_guard() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let buffers = sparse(&mut stream, 2, 1);
    let Some(_) = address(&buffers[0].1) else { return };
    let raws: Vec<_> = buffers.iter().map(|(_, buffer)| buffer.raw().unwrap()).collect();
    assert!(raws.iter().all(|raw| raw.len_bytes() == LEN * 4 && raw.address() != 0));
    assert_eq!(stream.compact().unwrap().buffers, 0);
    for (raw, (_, buffer)) in raws.iter().zip(&buffers) {
        assert_eq!(buffer.raw().unwrap().address(), raw.address());
        let part = buffer.slice(3..7).unwrap().raw().unwrap();
        assert_eq!((part.address(), part.len_bytes()), (raw.address() + 12, 16));
    }
    drop(raws);
    assert_eq!(stream.compact().unwrap().buffers, 1);
    verify(&mut stream, &buffers);
}

/// The guard is a hold, not only a word: nobody else gets the bytes.
#[test]
fn a_raw_address_outlives_its_buffer() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let buffer = filled(&mut stream, 7.0);
    let Some(_) = address(&buffer) else { return };
    let raw = buffer.raw().unwrap();
    drop(buffer);
    let others: Vec<_> = (0..40).map(|_| filled(&mut stream, 0.0)).collect();
    assert!(others.iter().all(|other| other.raw().unwrap().address() != raw.address()));
    let in_use = device.memory_usage().in_use;
    drop(raw);
    assert_eq!(device.memory_usage().in_use, in_use - LEN * 4);
}

/// A buffer that has no bytes yet has no address, and an empty one lies nowhere.
#[test]
fn there_is_no_address_where_there_are_no_bytes() {
    let Some((device, k)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let empty = stream.alloc::<f32>(0).unwrap();
    let raw = empty.raw().unwrap();
    assert_eq!((raw.address(), raw.len_bytes()), (0, 0));
    let mut recording = stream.prepare().unwrap().begin().unwrap();
    let mut born = recording.alloc::<f32>(LEN).unwrap();
    recording.launch(&k.inc, grid(), (&mut born, Len)).unwrap();
    assert!(matches!(born.raw(), Err(Error::StillRecording { operation: "raw", .. })));
    drop(recording);
    assert!(matches!(born.raw(), Err(Error::NeverSealed { .. })));
}

/// A graph would hold a page that is hardly used for as long as it lives.
#[test]
fn before_a_capture_what_lies_on_a_page_that_is_hardly_used_moves() {
    let Some((device, k)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    // One page that is well used, and one buffer on another.
    let full: Vec<_> = (0..24).map(|i| (i as f32, filled(&mut stream, i as f32))).collect();
    let rest: Vec<_> = (24..32).map(|i| filled(&mut stream, i as f32)).collect();
    let mut alone = filled(&mut stream, 100.0);
    drop(rest);
    stream.memory_cleanup().unwrap();
    assert_eq!(device.memory_usage().held, 2 * PAGE_BYTES);
    let (mut graph, ()) = stream.record(|work| work.launch(&k.inc, grid(), (&mut alone, Len))).unwrap();
    graph.replay(&mut stream).unwrap();
    assert!(all(&stream.read(&alone).unwrap(), 101.0));
    assert!(eventually(|| device.memory_usage().held == PAGE_BYTES), "the graph pins no page of its own");
    verify(&mut stream, &full);
}

/// A page of exactly one buffer has nothing to gain.
#[test]
fn buffers_with_a_page_of_their_own_do_not_move() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let in_mode =
        |stream: &mut Stream, mode| stream.allocating(mode, |work| work.alloc_scratch::<f32>(LEN)).unwrap();
    let persistent = in_mode(&mut stream, AllocationMode::Persistent);
    let dedicated = in_mode(&mut stream, AllocationMode::Dedicated);
    let large = stream.alloc_scratch::<f32>(1 << 20).unwrap();
    let addresses = [&persistent, &dedicated, &large].map(address);
    let copies = calls_of(&device, Call::Copy);
    assert_eq!(stream.compact().unwrap().buffers, 0);
    assert_eq!([&persistent, &dedicated, &large].map(address), addresses);
    assert_eq!(calls_of(&device, Call::Copy), copies);
}

/// By phase, as for every call about memory; typed streams do not compile there.
#[test]
fn a_stream_whose_phase_is_known_at_run_time_refuses_to_compact_in_a_capture() {
    let Some((device, _)) = working(1) else { return };
    let mut any = AnyStream::from(device.stream().unwrap());
    any.compact().unwrap();
    any.prepare().unwrap();
    assert!(matches!(any.compact(), Err(Error::WrongPhase { operation: "compact", .. })));
    any.begin().unwrap();
    assert!(matches!(any.compact(), Err(Error::WrongPhase { operation: "compact", .. })));
    any.abort().unwrap();
    any.compact().unwrap();
}

/// A compaction that had looked for pins moved a buffer all the same that was pinned before its turn came: its address,
/// or a graph that was sealed meanwhile, then meant bytes that had gone back to the driver.
#[test]
fn an_address_that_is_taken_while_others_move_is_good_from_then_on() {
    const ROUNDS: usize = 300;
    const SMALL: usize = 4 << 10;
    let Some((device, _)) = working(2) else { return };
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let buffers: Vec<Buffer<u8>> = (0..60).map(|_| a.alloc_scratch(SMALL).unwrap()).collect();
    let Some(_) = address(&buffers[0]) else { return };
    let done = AtomicBool::new(false);
    let held = thread::scope(|scope| {
        let (buffers, done) = (&buffers, &done);
        let holder = scope.spawn(move || {
            let mut held = 0;
            while !done.load(Ordering::Relaxed) {
                let buffer = &buffers[held % buffers.len()];
                let raw = buffer.raw().unwrap();
                let before = raw.address();
                (0..4).for_each(|_| thread::yield_now());
                assert_eq!(buffer.raw().unwrap().address(), before, "after {held} addresses");
                drop(raw);
                (0..16).for_each(|_| thread::yield_now());
                held += 1;
            }
            held
        });
        let mut kept = None;
        for _ in 0..ROUNDS {
            // The last of these lies on a page of its own, which is where the small ones go.
            let mut large: Vec<Buffer<u8>> = (0..8).map(|_| b.alloc_scratch(256 << 10).unwrap()).collect();
            kept = large.pop();
            drop(large);
            b.compact().unwrap();
            b.memory_cleanup().unwrap();
        }
        drop(kept);
        done.store(true, Ordering::Relaxed);
        holder.join()
    });
    assert!(held.is_ok_and(|held| held > 0));
    device.check().unwrap();
}
