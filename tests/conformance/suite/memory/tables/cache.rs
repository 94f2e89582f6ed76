//! What is uploaded how often, and what is kept.

use dacapo::AllocationMode;

use super::support::*;
use super::{N, launch, plus, repeated, spread, spread_of, table, try_launch, uploads};

/// Shapes repeat from launch to launch: each upload that is not needed is a copy in front of a kernel.
#[test]
fn identical_tables_are_uploaded_once() {
    let Some(device) = device(1) else { return };
    let (k, start) = (spread(&device), uploads(&device));
    let (mut one, mut other) = (device.stream().unwrap(), device.stream().unwrap());
    for n in 0..100 {
        let stream = if n % 2 == 0 { &mut one } else { &mut other };
        assert_eq!(spread_of(stream, &k, &table(n % 5)), repeated(&table(n % 5)));
    }
    assert_eq!(uploads(&device), plus(start, 5), "two streams of one slot share its tables");
    assert_eq!(spread_of(&mut one, &k, &table(0)[..2]), repeated(&table(0)[..2]));
    assert_eq!(uploads(&device), plus(start, 6), "the start of a table is another table");
}

/// One cache for all slots would make every launch wait for the lock, and for the work, of the others.
#[test]
fn each_slot_has_tables_of_its_own() {
    let Some(device) = device(2) else { return };
    let (k, start) = (spread(&device), uploads(&device));
    let (mut one, mut other) = (device.stream().unwrap(), device.stream().unwrap());
    let (mut x, mut y) = (one.alloc::<u32>(N).unwrap(), other.alloc::<u32>(N).unwrap());
    assert_eq!(other.read(&y).unwrap(), [0; N]);
    let gate = Gate::close(&mut one);
    for _ in 0..3 {
        launch(&mut one, &k, &table(1), &mut x);
        launch(&mut other, &k, &table(1), &mut y);
    }
    assert_eq!(uploads(&device), plus(start, 2));
    // Neither the upload nor a launch waits for the other slot.
    assert_eq!(other.read(&y).unwrap(), repeated(&table(1)));
    gate.open();
    assert_eq!(one.read(&x).unwrap(), repeated(&table(1)));
}

/// A program whose shapes never repeat would fill the device with tables.
#[test]
fn ten_thousand_distinct_tables_take_no_more_memory_than_a_few_hundred() {
    let Some(device) = device(1) else { return };
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut out = stream.alloc_scratch::<u32>(N).unwrap();
    let baseline = Baseline::take(&mut stream);
    let start = device.memory_usage().in_use;
    for (words, most) in [(3, 320 << 8), (1000, 2 << 20)] {
        let mut peak = 0;
        for n in 0..10_000u32 {
            let table: Vec<u32> = (n..n + words).collect();
            launch(&mut stream, &k, &table, &mut out);
            peak = peak.max(device.memory_usage().in_use - start);
            if n % 1000 == 0 {
                assert_eq!(stream.read(&out).unwrap(), repeated(&table), "table {n} of {words} words");
            }
        }
        assert!(peak <= most, "{peak} bytes of tables of {words} words");
        assert!(peak >= most / 4, "{peak}: nothing was kept");
    }
    assert!(baseline.returns(&mut stream));
}

/// A cache that let go of what is used most would be worse than none.
#[test]
fn the_least_recently_used_tables_leave_first() {
    let Some(device) = device(1) else { return };
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let (mut out, start) = (stream.alloc_scratch::<u32>(N).unwrap(), uploads(&device));
    for n in 1..=1000 {
        launch(&mut stream, &k, &table(0), &mut out);
        launch(&mut stream, &k, &table(n), &mut out);
    }
    assert_eq!(uploads(&device), plus(start, 1001), "the one that is always used was uploaded once");
    for n in (900..=1000).rev() {
        launch(&mut stream, &k, &table(n), &mut out);
    }
    assert_eq!(uploads(&device), plus(start, 1001), "the last hundred are there");
    launch(&mut stream, &k, &table(1), &mut out);
    assert_eq!(uploads(&device), plus(start, 1002), "the first one is not");
    assert_eq!(stream.read(&out).unwrap(), repeated(&table(1)));
}

/// A few large tables would push hundreds of small ones out.
#[test]
fn a_large_table_is_uploaded_for_its_one_launch() {
    let Some(device) = device(1) else { return };
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let (small, large, start) = (vec![1u32; 1024], vec![1u32; 1025], uploads(&device));
    for (table, expected) in [(&small, 1), (&large, 4)] {
        for _ in 0..3 {
            assert_eq!(spread_of(&mut stream, &k, table), [1; N]);
        }
        assert_eq!(uploads(&device), plus(start, expected));
    }
    let in_use = device.memory_usage().in_use;
    assert!(in_use <= 2 * 4096, "{in_use}: only the small one is still there");
}

/// A page of its own for twelve bytes, given back at once: the user asked that of buffers.
#[test]
fn tables_come_from_the_pool_whatever_the_mode_for_buffers() {
    let Some(device) = device(1) else { return };
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut out = stream.alloc::<u32>(N).unwrap();
    let held = device.memory_usage().held;
    let dedicated = AllocationMode::Dedicated;
    stream.allocating(dedicated, |work| try_launch(work, &k, &table(1), &mut out)).unwrap();
    assert_eq!(device.memory_usage().held, held);
    assert_eq!(stream.read(&out).unwrap(), repeated(&table(1)));
}

/// Bytes of a table that left the cache, given to the next one while a queued launch still needs them.
#[test]
fn a_table_that_leaves_before_its_launch_runs_is_still_what_it_was() {
    let Some(device) = device(1) else { return };
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    // An upload, a launch and a zeroing each, behind the gate.
    let launches = (subject::MOST_HELD_UP / 5).min(200);
    let mut outs: Vec<_> = (0..launches).map(|_| stream.alloc_scratch::<u32>(N).unwrap()).collect();
    stream.sync().unwrap();
    let gate = Gate::close(&mut stream);
    for (n, out) in (0u32..).zip(&mut outs) {
        launch(&mut stream, &k, &table(n), out);
    }
    stream.memory_cleanup().unwrap();
    let buffers: Vec<_> = (0..launches).map(|_| stream.alloc::<u32>(3).unwrap()).collect();
    assert!(is_held_up(&mut stream), "nothing ran yet");
    gate.open();
    for (n, out) in (0u32..).zip(&outs) {
        assert_eq!(stream.read(out).unwrap(), repeated(&table(n)), "launch {n}");
    }
    assert!(buffers.iter().all(|buffer| stream.read(buffer).unwrap() == [0; 3]));
}

/// The tables of one slot, whose bytes another slot's stream gets next.
#[test]
fn the_next_owner_of_a_tables_bytes_waits_for_its_launches() {
    let Some(device) = device(2) else { return };
    let k = spread(&device);
    let (mut one, mut other) = (device.stream().unwrap(), device.stream().unwrap());
    let mut outs: Vec<_> = (0..50).map(|_| one.alloc_scratch::<u32>(N).unwrap()).collect();
    one.sync().unwrap();
    let gate = Gate::close(&mut one);
    for (n, out) in (0u32..).zip(&mut outs) {
        launch(&mut one, &k, &table(n), out);
    }
    one.memory_cleanup().unwrap();
    let mut buffers: Vec<_> = (0..50).map(|_| one.alloc_scratch::<u32>(3).unwrap()).collect();
    buffers.iter_mut().for_each(|buffer| other.fill(buffer, u32::MAX).unwrap());
    let _ = other.sync_timeout(SHORT);
    gate.open();
    for (n, out) in (0u32..).zip(&outs) {
        assert_eq!(one.read(out).unwrap(), repeated(&table(n)), "launch {n}");
    }
}
