//! What a reservation does when there is no memory, and how pages are sized.

use super::sparse::{PAGE_BYTES, sparse, verify};
use super::subject::calls_of;
use super::support::*;
use super::zoo;
use dacapo::{AllocationMode, Call, Error};

/// Free bytes in pieces that do not fit are worth something once their neighbours have moved.
#[test]
fn a_reservation_that_finds_no_memory_moves_buffers_together() {
    let limit = 4 * PAGE_BYTES;
    let Some(device) = open(DeviceOptions::new().max_streams(2).memory_limit(limit)) else { return };
    let [mut stream, mut other] = [0; 2].map(|_| device.stream().unwrap());
    let buffers = sparse(&mut stream, 4, 2);
    assert_eq!(device.memory_usage().held, limit);
    // Three pages' worth, from another slot, in one piece.
    let large = other.alloc::<u8>(3 * PAGE_BYTES).unwrap();
    assert_eq!(device.memory_usage().held, limit);
    verify(&mut stream, &buffers);
    assert!(other.read(&large).unwrap().iter().all(|byte| *byte == 0));
    // And now there really is none.
    let error = other.alloc::<u8>(PAGE_BYTES).unwrap_err();
    let Error::OutOfMemory { requested: PAGE_BYTES, held, free_in_pool: 0, largest_free: 0, .. } = error
    else {
        panic!("{error}")
    };
    assert_eq!(held, limit);
    let error = stream.alloc::<u8>(PAGE_BYTES).unwrap_err();
    let Error::OutOfMemory { free_in_pool, largest_free, .. } = error else { panic!("{error}") };
    assert_eq!(free_in_pool, PAGE_BYTES - buffers.len() * LEN * 4);
    assert!(largest_free > 0 && largest_free <= free_in_pool, "{largest_free}");
    verify(&mut stream, &buffers);
}

/// A device at its limit had nothing for a slot without a page, however empty the pages of the others were.
#[test]
fn at_the_limit_the_free_bytes_of_any_slot_serve_every_slot() {
    let options = DeviceOptions::new().max_streams(2).memory_limit(PAGE_BYTES);
    let Some(device) = open(options) else { return };
    let [mut stream, mut other] = [0; 2].map(|_| device.stream().unwrap());
    let first = filled(&mut stream, 1.0);
    let guests: Vec<_> = (2..10).map(|i| (i as f32, filled(&mut other, i as f32))).collect();
    assert_eq!(device.memory_usage().held, PAGE_BYTES);
    verify(&mut stream, &[(1.0, first)]);
    verify(&mut other, &guests);
    drop(guests);
    other.sync().unwrap();
    stream.memory_cleanup().unwrap();
    assert!(eventually(|| device.memory_usage().held == 0));
}

/// Numbers that are not there, or not true, are what somebody needs at three in the morning.
#[test]
fn more_than_there_is_is_an_error_with_its_numbers_that_changes_nothing() {
    const LIMIT: usize = 64 << 20;
    let Some(device) = open(DeviceOptions::new().max_streams(1).memory_limit(LIMIT)) else { return };
    let inc = zoo::inc::<u32>().load(&device).unwrap();
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<u32>(1000).unwrap();
    let held = device.memory_usage().held;
    let error = refused(stream.alloc::<u8>(LIMIT + 1));
    assert!(matches!(error, Error::BufferTooBig { .. } | Error::OutOfMemory { .. }), "{error}");
    let error = refused(stream.alloc::<u8>(LIMIT));
    let Error::OutOfMemory { requested, held: now, limit, .. } = error else { panic!("{error}") };
    assert_eq!((requested, now, limit), (LIMIT, held, Some(LIMIT)));
    assert_eq!(device.memory_usage().held, held);
    stream.launch(&inc, Grid::covering(1000), (&mut x, Len)).unwrap();
    assert_eq!(stream.read(&x).unwrap(), [1; 1000]);
}

/// A request that no device could serve would else cost everybody their caches.
#[test]
fn what_can_never_be_served_fails_at_once_and_gives_up_nobodys_cache() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    drop(filled(&mut stream, 1.0));
    stream.sync().unwrap();
    let (held, calls) = (device.memory_usage().held, subject::driver_calls(&device));
    let error = stream.alloc::<f32>(usize::MAX / 2).unwrap_err();
    assert!(matches!(error, Error::BufferTooBig { .. }), "{error}");
    assert_eq!((device.memory_usage().held, subject::driver_calls(&device)), (held, calls));
}

/// A free page of the wrong size is no use to weights that come back in the sizes that they had.
#[test]
fn persistent_buffers_have_pages_of_exactly_their_size_which_wait_for_the_same_size() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let weight = |stream: &mut Stream, bytes| {
        stream.allocating(AllocationMode::Persistent, |work| work.alloc_scratch::<u8>(bytes)).unwrap()
    };
    let sizes = [100_000, 3_000_000, 3_000_000, 512];
    let exact: usize = sizes.iter().map(|bytes: &usize| bytes.next_multiple_of(256)).sum();
    for _ in 0..3 {
        let weights: Vec<_> = sizes.iter().map(|bytes| weight(&mut stream, *bytes)).collect();
        let usage = device.memory_usage();
        assert_eq!((usage.held, usage.in_use), (exact, exact));
        drop(weights);
        assert_eq!(device.memory_usage().held, exact, "they wait for the next ones");
    }
    let fresh = calls_of(&device, Call::Allocate);
    assert!(fresh.is_none_or(|allocations| allocations == 4));
    let smaller = weight(&mut stream, 2_999_000);
    assert_eq!(device.memory_usage().held, exact + 2_999_000_usize.next_multiple_of(256), "not a closer fit");
    drop(smaller);
    let pooled = stream.alloc_scratch::<u8>(3_000_000).unwrap();
    assert_eq!(
        calls_of(&device, Call::Allocate),
        fresh.map(|fresh| fresh + 2),
        "their pages are nobody else's"
    );
    drop(pooled);
    stream.memory_cleanup().unwrap();
    assert!(eventually(|| device.memory_usage().held == 0));
}

/// As many sizes of page as sizes of buffer is a page a buffer: none fits the next one.
#[test]
fn pages_come_in_few_sizes_and_grow_with_the_demand() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let buffers: Vec<_> = (0..1500).map(|i| stream.alloc_scratch::<u8>(70_000 + i * 16).unwrap()).collect();
    let total: usize = buffers.iter().map(Buffer::len).sum();
    let usage = device.memory_usage();
    assert!(usage.held <= total + total / 4, "{} held for {total}", usage.held);
    let pages = device.memory_report().pools[0].pages;
    assert!(
        pages <= 16 + 15,
        "{pages} pages for {total} bytes: a page never has less than a few percent of them"
    );
    drop(buffers);
    // Large ones are rounded up, so that one that is a little larger finds the page of the last one.
    stream.memory_cleanup().unwrap();
    let before = calls_of(&device, Call::Allocate);
    for i in 1..100 {
        drop(stream.alloc_scratch::<u8>((9 << 20) + i * 4096).unwrap());
    }
    assert_eq!(calls_of(&device, Call::Allocate), before.map(|before| before + 1));
    assert_eq!(device.memory_report().pools[0].pages, 1);
}

/// Pages of sizes that nobody asks for any more were kept by their number, however large they were.
#[test]
fn free_pages_of_large_buffers_are_kept_up_to_what_was_in_use_at_once() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let mib = |n: usize| n << 20;
    // One buffer at a time, of every size from 1 to 32 MiB: the peak is 32.
    for round in 0..3 {
        for n in 1..=32 {
            drop(stream.alloc_scratch::<u8>(mib(n * 7 % 33)).unwrap());
            assert!(eventually(|| device.memory_usage().held <= 2 * mib(32)), "round {round}, {n} MiB");
        }
    }
    // And sizes that come again and again find their pages.
    stream.memory_cleanup().unwrap();
    let sizes = [32, 3, 11, 3, 15, 1].map(mib);
    let round = |stream: &mut Stream| {
        sizes.iter().for_each(|bytes| drop(stream.alloc_scratch::<u8>(*bytes).unwrap()));
    };
    round(&mut stream);
    let warm = (calls_of(&device, Call::Allocate), device.memory_usage().held);
    (0..20).for_each(|_| round(&mut stream));
    assert_eq!((calls_of(&device, Call::Allocate), device.memory_usage().held), warm);
}
