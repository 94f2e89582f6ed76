//! What moves, and in which order with everything else.

use std::sync::atomic::{AtomicBool, Ordering};

use super::sparse::{PAGE_BYTES, sparse, verify};
use super::support::*;
use dacapo::Error;

/// A pool that was full once would else keep a page for each buffer that is left.
#[test]
fn buffers_on_sparse_pages_move_together_and_the_pages_go_back() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let buffers = sparse(&mut stream, 6, 3);
    assert_eq!(device.memory_usage().held, 6 * PAGE_BYTES);
    let done = stream.compact().unwrap();
    assert_eq!(done.pages, 5);
    assert_eq!(done.bytes, done.buffers * LEN * 4);
    stream.sync().unwrap();
    assert!(eventually(|| device.memory_usage().held == PAGE_BYTES));
    assert_eq!(device.memory_usage().in_use, buffers.len() * LEN * 4);
    verify(&mut stream, &buffers);
    assert_eq!(stream.compact().unwrap().buffers, 0, "nothing is left to be done");
}

/// Slots that each keep a page for a buffer or two would hold a page a slot for ever.
#[test]
fn buffers_of_every_slot_move_also_onto_pages_of_others() {
    let Some((device, _)) = working(8) else { return };
    let mut streams: Vec<Stream> = (0..8).map(|_| device.stream().unwrap()).collect();
    let buffers: Vec<Vec<_>> = streams.iter_mut().map(|stream| sparse(stream, 1, 3)).collect();
    assert_eq!(device.memory_usage().held, 8 * PAGE_BYTES);
    let done = streams[5].compact().unwrap();
    assert_eq!(done.pages, 7);
    assert!(eventually(|| device.memory_usage().held == PAGE_BYTES));
    // Each is used by its own stream, and by another one.
    for (index, buffers) in buffers.iter().enumerate() {
        verify(&mut streams[index], buffers);
        verify(&mut streams[(index + 3) % 8], buffers);
    }
    drop(buffers);
    streams[0].memory_cleanup().unwrap();
    assert!(eventually(|| device.memory_usage().held == 0));
}

/// A copy that did not wait would move bytes that are still being written, and lose the write.
#[test]
fn a_move_waits_for_the_work_in_flight_and_what_comes_after_it_waits_for_the_move() {
    let Some((device, k)) = working(3) else { return };
    let [mut a, mut b, mut c] = [0; 3].map(|_| device.stream().unwrap());
    let mut buffers = sparse(&mut a, 2, 2);
    let mut behind = a.alloc::<f32>(1).unwrap();
    a.sync().unwrap();
    // In flight on another slot: every buffer is written anew.
    let gate = Gate::close(&mut b);
    for (value, buffer) in &mut buffers {
        *value += 1.0;
        b.launch(&k.inc, grid(), (&mut *buffer, Len)).unwrap();
    }
    let done = a.compact().unwrap();
    assert_eq!((done.buffers, done.pages), (2, 1));
    // A third slot uses them before any of that has run.
    for (value, buffer) in &mut buffers {
        *value += 1.0;
        c.launch(&k.inc, grid(), (&mut *buffer, Len)).unwrap();
    }
    a.fill(&mut behind, 1.0).unwrap();
    assert!(is_held_up(&mut a), "the move waits for the slot that writes");
    assert!(is_held_up(&mut c), "and what comes after it for the move");
    gate.open();
    verify(&mut b, &buffers);
}

/// Bytes that were moved away have a new tenant at once, whose writes must not get in front of the move.
#[test]
fn the_next_tenant_of_the_old_bytes_waits_for_the_move() {
    let Some((device, _)) = working(2) else { return };
    let [mut a, mut b] = [0; 2].map(|_| device.stream().unwrap());
    let buffers = sparse(&mut a, 3, 8);
    a.sync().unwrap();
    let gate = Gate::close(&mut a);
    let done = a.compact().unwrap();
    assert!(done.buffers >= 8, "{done:?}");
    // The other slot goes first wherever it may.
    let fresh: Vec<_> = (0..40).map(|i| (-(i as f32), filled(&mut b, -(i as f32)))).collect();
    let others: Vec<_> = (0..40).map(|i| (i as f32 / 2.0, filled(&mut a, i as f32 / 2.0))).collect();
    let _ = b.sync_timeout(SHORT);
    gate.open();
    verify(&mut a, &buffers);
    verify(&mut a, &fresh);
    verify(&mut b, &others);
}

/// A read in flight has the old bytes' address.
#[test]
fn a_read_in_flight_sees_the_bytes_where_they_were() {
    let Some((device, _)) = working(2) else { return };
    let [mut a, mut b] = [0; 2].map(|_| device.stream().unwrap());
    let buffers = sparse(&mut a, 2, 1);
    a.sync().unwrap();
    let gate = Gate::close(&mut b);
    let reads: Vec<_> = buffers.iter().map(|(_, buffer)| b.read_async(buffer).unwrap()).collect();
    a.compact().unwrap();
    let overwritten: Vec<_> = (0..70).map(|_| filled(&mut a, -1.0)).collect();
    gate.open();
    for (read, (value, _)) in reads.into_iter().zip(&buffers) {
        assert!(all(&block_on(read).unwrap(), *value));
    }
    drop(overwritten);
    verify(&mut b, &buffers);
}

/// A tainted half that came out clean after a move would be read as a result.
#[test]
fn what_was_left_unwritten_is_still_so_after_a_move_and_the_rest_is_not() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let mut buffers = sparse(&mut stream, 2, 1);
    for (_, buffer) in &mut buffers {
        let half = buffer.slice_mut(..LEN / 2).unwrap();
        stream.host_call_with(Touches::new().writes(half), || panic!("on purpose")).unwrap();
    }
    assert!(stream.sync().is_err(), "the failure of the call");
    let before = stream.read(&buffers[0].1).unwrap_err().root().to_string();
    assert_eq!(stream.compact().unwrap().buffers, 1);
    for (value, buffer) in &mut buffers {
        let error = stream.read(&*buffer).unwrap_err();
        assert!(matches!(error, Error::Tainted { .. }), "{error}");
        assert_eq!(error.root().to_string(), before);
        assert!(all(&stream.read(buffer.slice(LEN / 2..).unwrap()).unwrap(), *value));
        // A full write clears it, where it is now.
        stream.fill(&mut *buffer, *value).unwrap();
    }
    verify(&mut stream, &buffers);
}

/// A failure that only shows when queued work runs must reach the bytes although they have moved meanwhile.
#[test]
fn a_failure_that_is_still_in_flight_moves_with_the_bytes() {
    let Some((device, _)) = working(2) else { return };
    let [mut a, mut b] = [0; 2].map(|_| device.stream().unwrap());
    let mut buffers = sparse(&mut a, 2, 1);
    a.sync().unwrap();
    let gate = Gate::close(&mut b);
    buffers.iter_mut().for_each(|(_, buffer)| fail_late(&mut b, buffer));
    assert_eq!(a.compact().unwrap().buffers, 1);
    gate.open();
    for (_, buffer) in &buffers {
        assert!(matches!(a.read(buffer).unwrap_err().root(), Error::CallbackPanicked { .. }));
    }
}

/// Parts of one allocation have one home.
#[test]
fn parts_of_a_buffer_move_with_it() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let mut buffers = sparse(&mut stream, 2, 1);
    let (value, mut last) = buffers.pop().unwrap();
    let tail = last.split_off(LEN / 4).unwrap();
    let words: Buffer<u32> = tail.cast().unwrap();
    buffers.pop();
    // Alone on a page, it moves to where others are.
    let others: Vec<_> = (0..4).map(|i| (i as f32, filled(&mut stream, i as f32))).collect();
    stream.compact().unwrap();
    assert!(all(&stream.read(&last).unwrap(), value));
    assert!(stream.read(&words).unwrap().iter().all(|word| *word == value.to_bits()));
    verify(&mut stream, &others);
}

/// The order of the device must hold for whatever other threads do meanwhile.
#[test]
fn other_threads_work_while_buffers_move() {
    const ROUNDS: usize = 150;
    let Some((device, k)) = working(4) else { return };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let work = |slot: usize| {
            let (device, k) = (&device, &k);
            move || {
                let mut stream = device.stream().unwrap();
                let mut buffers = sparse(&mut stream, 2, 3);
                for round in 0..ROUNDS {
                    let at = (round * 7 + slot) % buffers.len();
                    let (value, buffer) = &mut buffers[at];
                    *value += 1.0;
                    stream.launch(&k.inc, grid(), (&mut *buffer, Len)).unwrap();
                    if round % 5 == 0 {
                        let i = round as f32;
                        buffers[at] = (i, filled(&mut stream, i));
                    }
                    if round % 31 == 0 {
                        verify(&mut stream, &buffers);
                    }
                }
                verify(&mut stream, &buffers);
            }
        };
        let threads: Vec<_> = (0..3).map(|slot| scope.spawn(work(slot))).collect();
        scope.spawn(|| {
            let mut stream = device.stream().unwrap();
            while !stop.load(Ordering::Relaxed) {
                stream.compact().unwrap();
                std::thread::yield_now();
            }
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    let mut stream = device.stream().unwrap();
    stream.memory_cleanup().unwrap();
    assert!(eventually(|| device.memory_usage().held == 0));
}

/// Pages that were nearly full were emptied into one that was nearly empty, again and again, for no page in the end.
#[test]
fn a_pool_that_was_brought_together_is_left_alone() {
    const BYTES: usize = 448 << 10;
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let all: Vec<Buffer<u8>> = (0..146).map(|_| stream.alloc_scratch(BYTES).unwrap()).collect();
    let _every_other: Vec<_> = all.into_iter().step_by(2).collect();
    let first = stream.compact().unwrap();
    assert!(first.pages > 0 && first.buffers <= 73, "each buffer moves once: {first:?}");
    let again = stream.compact().unwrap();
    assert_eq!((again.buffers, again.pages), (0, 0));
}
