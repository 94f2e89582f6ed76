//! Fresh memory of work that executes at once shows nobody's old bytes: the device is filled with a canary in every kind of
//! memory that it has, all of it is let go of, and then every kind of fresh memory is read.

use super::kernels;
use super::planted::{CANARY, Ground, MODES, SIZES, clean};
use super::support::*;
use dacapo::{Layout, Zeroing};

/// The control: were there no old bytes to be found, the other tests here would show nothing.
#[test]
fn scratch_memory_shows_old_bytes_unless_it_is_always_zeroed() {
    let Some(mut ground) = Ground::new(Zeroing::OnRequest) else { return };
    for size in SIZES {
        let scratch = ground.streams[0].alloc_scratch::<u8>(size).unwrap();
        assert!(ground.seen(0, &scratch).contains(&CANARY), "{size} bytes of pooled memory were never used");
    }
    let Some(mut ground) = Ground::new(Zeroing::Always) else { return };
    for on in [0, 1] {
        for (mode, size) in MODES.into_iter().flat_map(|mode| SIZES.map(|size| (mode, size))) {
            let s = &mut ground.streams[on];
            let scratch: Buffer<u8> = s.allocating(mode, |w| w.alloc_scratch(size)).unwrap();
            assert!(clean(&s.read(&scratch).unwrap()), "{size} bytes, {mode:?}");
        }
    }
}

#[test]
fn a_new_buffer_reads_as_zero_in_every_mode_and_size_on_every_slot() {
    let Some(mut ground) = Ground::new(Zeroing::OnRequest) else { return };
    for on in [0, 1] {
        for (mode, size) in MODES.into_iter().flat_map(|mode| SIZES.map(|size| (mode, size))) {
            let fresh: Buffer<u8> = ground.streams[on].allocating(mode, |w| w.alloc(size)).unwrap();
            // Used first by the other slot, which must wait for the zeroing.
            assert!(
                clean(&ground.streams[1 - on].read(&fresh).unwrap()),
                "{size} bytes, {mode:?}, slot {on}"
            );
            assert!(clean(&ground.seen(on, &fresh)), "{size} bytes, {mode:?}, slot {on}, in a kernel");
        }
    }
}

/// After a cleanup the bytes come from the driver again, or from pages that others still hold a part of.
#[test]
fn a_new_buffer_reads_as_zero_after_a_cleanup_too() {
    let Some(mut ground) = Ground::new(Zeroing::OnRequest) else { return };
    let mut kept = ground.streams[0].alloc::<u8>(1).unwrap();
    ground.streams[0].fill(&mut kept, CANARY).unwrap();
    ground.streams[0].memory_cleanup().unwrap();
    for size in SIZES {
        let fresh = ground.streams[0].alloc::<u8>(size).unwrap();
        assert!(clean(&ground.seen(0, &fresh)), "{size} bytes");
    }
    assert_eq!(ground.streams[0].read(&kept).unwrap(), [CANARY]);
}

/// A moved buffer brings its zeros along into bytes that somebody else had, and leaves none of its own to the next.
#[test]
fn a_buffer_reads_as_zero_after_it_was_moved_and_so_does_whoever_gets_its_old_bytes() {
    let Some(mut ground) = Ground::new(Zeroing::OnRequest) else { return };
    const SIZE: usize = 100_003;
    let mut all: Vec<Buffer<u8>> = (0..80).map(|_| ground.streams[0].alloc(SIZE).unwrap()).collect();
    let mut secrets: Vec<Buffer<u8>> = Vec::new();
    for (at, mut buffer) in all.drain(..).enumerate().filter(|(at, _)| at % 7 == 0).collect::<Vec<_>>() {
        if at % 2 == 0 {
            ground.streams[0].fill(&mut buffer, CANARY).unwrap();
            secrets.push(buffer);
        } else {
            all.push(buffer);
        }
    }
    let done = ground.streams[1].compact().unwrap();
    assert!(done.buffers > 0, "{done:?}");
    for buffer in &all {
        assert!(clean(&ground.seen(1, buffer)), "moved among the canary");
    }
    for buffer in &secrets {
        assert!(ground.streams[1].read(buffer).unwrap() == vec![CANARY; SIZE]);
    }
    for _ in 0..80 {
        let fresh = ground.streams[0].alloc::<u8>(SIZE).unwrap();
        assert!(clean(&ground.seen(1, &fresh)), "where a moved canary was");
    }
}

/// What is not written stays zero, to the byte, however the buffer is divided and called.
#[test]
fn a_buffer_that_is_written_in_part_or_divided_or_cast_shows_zeros_elsewhere() {
    let Some(mut ground) = Ground::new(Zeroing::OnRequest) else { return };
    for size in SIZES.into_iter().filter(|size| *size > 2) {
        let mut fresh = ground.streams[0].alloc::<u8>(size).unwrap();
        let (middle, s) = (size / 3..size / 3 + 1, &mut ground.streams[0]);
        s.write(fresh.slice_mut(middle.clone()).unwrap(), &[7]).unwrap();
        let mut expected = vec![0; size];
        expected[middle.start] = 7;
        assert_eq!(ground.seen(0, &fresh), expected, "{size}");

        let mut head = ground.streams[1].alloc::<u8>(size).unwrap();
        let tail = head.split_off(size / 2).unwrap();
        assert_eq!(head.len() + tail.len(), size);
        assert!(clean(&ground.seen(0, &tail)) && clean(&ground.seen(1, &head)), "{size}, divided");
        drop(head);
        assert!(clean(&ground.streams[0].read(&tail).unwrap()), "{size}, and half of it gone");

        let words = ground.streams[0].alloc::<u8>(size.next_multiple_of(8)).unwrap();
        let words = words.cast::<u64>().expect("whole words of a fresh buffer");
        assert!(ground.streams[0].read(&words).unwrap().iter().all(|word| *word == 0), "{size}, as words");
    }
}

/// An operation in place starts from zero, also as the first one.
#[test]
fn a_kernel_in_place_starts_from_zero() {
    let Some(mut ground) = Ground::new(Zeroing::OnRequest) else { return };
    let Ground { streams: [s, _], inc, .. } = &mut ground;
    for size in SIZES {
        let mut fresh = s.alloc::<u8>(size).unwrap();
        s.launch(inc, Grid::covering(size), (&mut fresh, Len)).unwrap();
        assert!(s.read(&fresh).unwrap() == vec![1; size], "{size}");
    }
}

/// A short transfer through staging that a long one used before it brings its own bytes and no more.
#[test]
fn a_short_transfer_after_a_long_one_carries_only_its_own_bytes() {
    let Some(mut ground) = Ground::new(Zeroing::OnRequest) else { return };
    let s = &mut ground.streams[0];
    let mut long = s.alloc::<u8>(1 << 20).unwrap();
    // Lent, so that both go through the same staging memory.
    let (canary, nines) = (vec![CANARY; 1 << 20], vec![9; 1 << 20]);
    for size in SIZES.into_iter().filter(|size| *size < 1 << 20) {
        s.write(&mut long, &canary).unwrap();
        assert_eq!(s.read(&long).unwrap().len(), 1 << 20);
        let mut short = s.alloc::<u8>(size + 512).unwrap();
        s.write(short.slice_mut(256..256 + size).unwrap(), &nines[..size]).unwrap();
        let read = s.read(&short).unwrap();
        assert_eq!(read.len(), size + 512);
        assert!(clean(&read[..256]) && clean(&read[256 + size..]), "{size}");
        assert!(read[256..256 + size] == vec![9; size], "{size}");
        let mut into = vec![1; size];
        s.read_into(short.slice(..size.min(256)).unwrap(), &mut into[..size.min(256)]).unwrap();
        assert!(clean(&into[..size.min(256)]));
    }
}

/// The padding between rows is nobody's to write: neither what staging held before nor what the pool did may be there.
#[test]
fn a_pitched_transfer_shows_zeros_in_the_padding_and_only_the_rows_elsewhere() {
    let Some(mut ground) = Ground::new(Zeroing::OnRequest) else { return };
    for (rows, columns, pitch) in [(3, 5, 8), (1, 255, 300), (700, 31, 64), (400, 1543, 1600)] {
        let layout = Layout::pitched(&[rows, columns], pitch).unwrap();
        let elements: Vec<u8> = (0..rows * columns).map(|at| at as u8 | 1).collect();
        let s = &mut ground.streams[0];
        let mut fresh = s.alloc::<u8>(rows * pitch).unwrap();
        s.write_pitched(&mut fresh, &layout, &elements).unwrap();
        let found = ground.seen(1, &fresh);
        for (row, (found, expected)) in found.chunks(pitch).zip(elements.chunks(columns)).enumerate() {
            assert!(found[..columns] == *expected && clean(&found[columns..]), "row {row} of {layout:?}");
        }
        let s = &mut ground.streams[1];
        s.fill(&mut fresh, CANARY).unwrap();
        s.write_pitched(&mut fresh, &layout, &elements).unwrap();
        assert!(s.read_pitched(&fresh, &layout).unwrap() == elements, "{layout:?}");
        let other = s.alloc::<u8>(rows * pitch).unwrap();
        assert!(clean(&s.read_pitched(&other, &layout).unwrap()), "{layout:?}");
    }
}

/// A kernel sees the table that its launch brought, to the byte, and nothing of a larger one before it.
#[test]
fn a_table_after_a_larger_one_is_only_itself() {
    let Some(mut ground) = Ground::new(Zeroing::OnRequest) else { return };
    let show = kernels::show().load(&ground.device).unwrap();
    let mut out = ground.streams[0].alloc_scratch::<u8>(64 << 10).unwrap();
    for size in SIZES.into_iter().filter(|size| *size <= 4096) {
        for table in [vec![CANARY; 64 << 10], vec![1; size]] {
            let s = &mut ground.streams[0];
            let grid = Grid::covering(out.len());
            s.launch(&show, grid, (&table[..], &mut out, Len, Len)).unwrap();
            let eager = s.read(&out).unwrap();
            let (mut graph, ()) =
                s.record(|w| w.launch(&show, grid, (&table[..], &mut out, Len, Len))).unwrap();
            graph.replay(s).unwrap();
            for found in [eager, s.read(&out).unwrap()] {
                assert!(found[..table.len()] == table && clean(&found[table.len()..]), "{size}");
            }
        }
    }
}
